#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wattlane_fuzz::policy(data));
