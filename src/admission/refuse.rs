//! A refusal as the user reads it in `kubectl apply`.

/// Code and words of a refusal. The words are one or two sentences: what is wrong and what is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// 400 unreadable, 403 not allowed here, 422 cannot be served as written, 500 our own trouble.
    pub code: u16,
    pub message: String,
}

impl Refused {
    pub(super) fn new(code: u16, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for Refused {}

/// The text of a tenant inside a message of ours: short and on one line.
pub(super) fn shown(text: &str) -> String {
    let mut cut: String = text.chars().take(63).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    format!("{cut:?}")
}

/// At most five of a list, in words.
pub(super) fn list<T: std::fmt::Display>(items: &[T]) -> String {
    let mut words: Vec<String> = items.iter().take(5).map(ToString::to_string).collect();
    if items.len() > 5 {
        words.push(format!("{} more", items.len() - 5));
    }
    words.join(", ")
}
