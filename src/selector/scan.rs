//! A look at the text before it is parsed: how deep can the tree become?
//!
//! The crate's parser, evaluator and destructors recurse over the tree, so its depth is bounded before there
//! is one. Brackets nest; chains such as `a + b + c` and `a.b.c` nest as well, one level a link.

/// Levels the text may open at any place. What people write stays below twenty.
const MAX_OPEN: usize = 100;

/// Refuses texts whose tree could be too deep. Counts generously: strings and comments are skipped, and
/// `&&`, `||` and `,` start afresh, as chains of those become flat or balanced.
pub(super) fn check_nesting(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    let mut levels = vec![0_usize];
    let mut open = 0_usize;
    let mut at = 0;
    while let Some(&b) = bytes.get(at) {
        let pair = bytes.get(at + 1).copied();
        match b {
            b'"' | b'\'' => {
                let raw = at > 0 && matches!(bytes[at - 1], b'r' | b'R');
                at = behind_string(bytes, at, raw);
                continue;
            }
            b'/' if pair == Some(b'/') => {
                at += text[at..].find('\n').unwrap_or(bytes.len() - at);
                continue;
            }
            b'(' | b'[' | b'{' => {
                levels.push(1);
                open += 1;
            }
            // An index or a call is also a link of the chain it belongs to.
            b')' | b']' | b'}' if levels.len() > 1 => {
                open -= levels.pop().unwrap_or(0);
                if let Some(level) = levels.last_mut() {
                    *level += 1;
                    open += 1;
                }
            }
            b',' => afresh(&mut levels, &mut open),
            b'&' | b'|' if pair == Some(b) => {
                afresh(&mut levels, &mut open);
                at += 1;
            }
            b'.' | b'+' | b'-' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'!' | b'?' => {
                if let Some(level) = levels.last_mut() {
                    *level += 1;
                    open += 1;
                }
                // `==`, `<=` and the like are one link.
                at += usize::from(pair == Some(b'='));
            }
            b'i' if pair == Some(b'n') && !word(bytes, at.wrapping_sub(1)) && !word(bytes, at + 2) => {
                if let Some(level) = levels.last_mut() {
                    *level += 1;
                    open += 1;
                }
                at += 1;
            }
            _ => {}
        }
        if open > MAX_OPEN {
            return Err(format!("expression is nested too deeply (more than {MAX_OPEN} levels)"));
        }
        at += 1;
    }
    Ok(())
}

/// The next term begins: of the level only its bracket is left.
fn afresh(levels: &mut [usize], open: &mut usize) {
    let bracket = usize::from(levels.len() > 1);
    if let Some(level) = levels.last_mut() {
        *open -= *level - bracket.min(*level);
        *level = bracket.min(*level);
    }
}

fn word(bytes: &[u8], at: usize) -> bool {
    bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

/// The place behind the string literal that starts at `at`, or the end of an unterminated one.
fn behind_string(bytes: &[u8], at: usize, raw: bool) -> usize {
    let quote = bytes[at];
    let triple = bytes.get(at..at + 3).is_some_and(|s| s.iter().all(|b| *b == quote));
    let length = if triple { 3 } else { 1 };
    let mut at = at + length;
    while at < bytes.len() {
        if bytes[at] == b'\\' && !raw {
            at += 2;
        } else if bytes[at..].len() >= length && bytes[at..at + length].iter().all(|b| *b == quote) {
            return at + length;
        } else if bytes[at] == b'\n' && !triple {
            // Not a string after all: the parser says so; what follows is counted.
            return at;
        } else {
            at += 1;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::check_nesting;

    #[test]
    fn depth_is_bounded_and_length_is_not() {
        let fine = [
            "device.driver == 'x' && ".repeat(300) + "true",
            "[".to_owned() + &"1, ".repeat(2000) + "1]",
            format!("'{}' == r\"{}\"", "(((".repeat(200), "[\\".repeat(200)),
            "((((((((((1))))))))))".to_owned(),
        ];
        for text in fine {
            assert_eq!(check_nesting(&text), Ok(()), "{text}");
        }
        let deep = [
            "(".repeat(5000) + "1" + &")".repeat(5000),
            "1".to_owned() + &"+1".repeat(3000),
            "a".to_owned() + &".b".repeat(3000),
            "a".to_owned() + &".f()".repeat(3000),
            "a".to_owned() + &"[0]".repeat(3000),
            "a in ".repeat(1000) + "a",
            "a?b:".repeat(1000) + "c",
            "[1].all(x,".repeat(500) + "true" + &")".repeat(500),
            "'".to_owned() + "\n" + &"(".repeat(5000),
        ];
        for text in deep {
            assert!(check_nesting(&text).is_err(), "{}", &text[..20]);
        }
    }
}
