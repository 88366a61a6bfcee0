//! The secret part of the path at which the API server asks for admission: who has not read it cannot ask.

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Of randomness; three bytes are four characters.
const BYTES: usize = 24;

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
        Ok(Self(URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// One that was made here: text that is shorter could be guessed, and text that is no part of a path would shut all out.
    pub fn read(text: &[u8]) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        (bytes.len() == BYTES).then(|| Self(URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// As it stands in a path.
    pub fn as_str(&self) -> &str {
        &self.0
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
        for other in [
            "",
            "x",
            &text[1..],
            &format!("{text}AAAA"),
            &format!("{text}\n"),
            &format!("/{}", &text[1..]),
        ] {
            assert_eq!(Token::read(other.as_bytes()), None, "{other:?}");
        }
    }
}
