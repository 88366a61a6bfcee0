//! The process: crypto provider and exit code. Everything else is the library's.

use std::process::ExitCode;

fn main() -> ExitCode {
    // One provider for server, client and webhook; a second install would be a bug of ours, and harmless.
    let _ = rustls::crypto::ring::default_provider().install_default();
    wattlane::cli::main()
}
