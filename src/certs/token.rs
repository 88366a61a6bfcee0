//! The secret part of the path at which the API server asks for admission: who has not read it cannot ask. And any ending
//! of that path, as its hash.

use std::fmt::Write as _;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

/// Of randomness; a byte is two characters.
const BYTES: usize = 24;

/// Lower-case hexadecimal: where a Service is named, kube-apiserver takes a path only if each part of it is a lower-case DNS
/// subdomain. Source: ValidateWebhookService in k8s.io/apiserver/pkg/util/webhook/validation.go.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Never shows it.
impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// # Errors
    /// No randomness.
    pub fn new() -> anyhow::Result<Self> {
        let mut bytes = [0; BYTES];
        let random = rustls::crypto::ring::default_provider().secure_random;
        random.fill(&mut bytes).ok().context("no randomness for a token")?;
        let mut text = String::with_capacity(2 * BYTES);
        for byte in bytes {
            write!(text, "{byte:02x}")?;
        }
        Ok(Self(text))
    }

    /// One that was made here: text that is shorter could be guessed, and a path with any other the API server may not take.
    pub fn read(text: &[u8]) -> Option<Self> {
        let lower_hex = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        let ours = text.len() == 2 * BYTES && text.iter().all(lower_hex);
        String::from_utf8(text.to_vec()).ok().filter(|_| ours).map(Self)
    }

    /// As it stands in a path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What follows the path of admission: a token, nothing at all, or whatever somebody wrote. A hash, so that it can be kept and
/// compared without saying what it is of.
#[derive(Clone, Copy, Debug, Eq)]
pub struct Ending([u8; 32]);

impl PartialEq for Ending {
    /// Takes as long whatever they are.
    fn eq(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        pairs.fold(0, |different, (a, b)| different | (a ^ b)) == 0
    }
}

impl Ending {
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }

    /// Hexadecimal, as [`Display`](std::fmt::Display) writes it.
    pub fn read(text: &str) -> Option<Self> {
        let mut hash = [0; 32];
        let digits = text.as_bytes();
        if digits.len() != 2 * hash.len() {
            return None;
        }
        let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
        for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
            let [high, low] = pair else { return None };
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(hash))
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_read_back_and_nothing_else_does() {
        let (a, b) = (Token::new().expect("random"), Token::new().expect("random"));
        assert_ne!(a, b);
        assert_eq!(Token::read(a.as_str().as_bytes()), Some(a.clone()));
        assert!(!format!("{a:?}").contains(a.as_str()));
        let text = a.as_str();
        assert_eq!(text.len(), 48);
        for other in [
            "",
            "x",
            &text[1..],
            &format!("{text}aa"),
            &format!("{text}\n"),
            &format!("/{}", &text[1..]),
            &format!("A{}", &text[1..]),
            &format!("-{}", &text[1..]),
            &format!("é{}", &text[2..]),
            // Of an earlier version, which no API server took where a Service is named.
            "AbCdEfGhIjKlMnOpQrStUvWxYz01-_-_",
        ] {
            assert_eq!(Token::read(other.as_bytes()), None, "{other:?}");
        }
    }

    #[test]
    fn endings_read_back_and_nothing_else_does() {
        for text in ["", "x", "a/b"] {
            let ending = Ending::of(text);
            assert_eq!(Ending::read(&ending.to_string()), Some(ending));
            assert!(ending == Ending::of(text) && ending != Ending::of("y"));
        }
        let whole = Ending::of("").to_string();
        for other in [
            "",
            "00",
            &whole[1..],
            &format!("{whole}0"),
            &format!("g{}", &whole[1..]),
            &format!("é{}", &whole[2..]),
        ] {
            assert_eq!(Ending::read(other), None, "{other}");
        }
    }
}
