//! Names and addresses on the command line, read where they are given: nonsense in a certificate, or in a list of who may
//! call, is noticed by nobody.

use std::net::{IpAddr, SocketAddr};

use crate::policy::dns_subdomain;

/// A DNS name or an IP address, of which a certificate is made; an empty one is none (`given`).
pub(super) fn host(text: &str) -> Result<String, String> {
    let text = text.trim();
    let name = text.strip_prefix("*.").unwrap_or(text).to_ascii_lowercase();
    if text.is_empty() || text.parse::<IpAddr>().is_ok() {
        return Ok(text.to_owned());
    }
    // Four numbers are an address, and this is none.
    let address = name.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if address || dns_subdomain(&name).is_err() {
        return Err("no DNS name and no IP address: write wattlane.example.com or 10.0.0.7".to_owned());
    }
    Ok(text.to_owned())
}

/// Those of a list that are something: a comma too many does no harm.
pub(super) fn given(hosts: &[String]) -> Vec<String> {
    hosts.iter().filter(|host| !host.is_empty()).cloned().collect()
}

/// What the certificate of a client is made out to.
pub(super) fn client(text: &str) -> Result<String, String> {
    let text = text.trim();
    let fine = (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    if !fine {
        return Err("no name: write 1 to 64 letters, digits and signs without blanks, like kube-scheduler".to_owned());
    }
    Ok(text.to_owned())
}

pub(super) fn listen(text: &str) -> Result<SocketAddr, String> {
    let wrong = |_| {
        "write IP:PORT, like 127.0.0.1:8443, 0.0.0.0:8443 for all addresses, or [::1]:8443; names are not looked up"
            .to_owned()
    };
    text.parse().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::{client, host, listen};

    #[test]
    fn nonsense_is_refused() {
        for good in ["wattlane.x.svc", "*.x.svc", "Host-1", "10.0.0.7", "::1", " a ", ""] {
            assert_eq!(host(good).as_deref(), Ok(good.trim()), "{good}");
        }
        for bad in ["a b", "a_b", "-a", "a..b", "10.0.0.256", "*", "a/b", "ü", "https://x"] {
            assert!(host(bad).is_err(), "{bad}");
        }
        for good in ["kube-scheduler", "system:kube-scheduler"] {
            assert_eq!(client(good).as_deref(), Ok(good));
        }
        for bad in ["", " ", "a b", "a\nb", "ü", &"a".repeat(65)] {
            assert!(client(bad).is_err(), "{bad}");
        }
        assert!(listen("0.0.0.0:8443").is_ok() && listen("[::1]:0").is_ok());
        for bad in ["localhost:18443", ":8443", "8443", "10.0.0.1", "::1:8443x"] {
            assert!(listen(bad).is_err_and(|e| e.starts_with("write IP:PORT")), "{bad}");
        }
    }
}
