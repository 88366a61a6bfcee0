//! Text as a terminal would show it: without escapes and control characters, with one kind of line end.

use serde_json::Value;

/// Drops ANSI escapes (colours, underlines, titles, wherever they stand) and control characters but tab and newline.
/// `\r\n` and a lone `\r` end a line.
pub(super) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.next() {
                Some('[') => skip_csi(&mut chars),
                // Operating system commands and their kin end with BEL or ESC \.
                Some(']' | 'P' | '^' | '_' | 'X') => skip_string(&mut chars),
                // Character sets: one more character.
                Some('(' | ')' | '*' | '+') => drop(chars.next()),
                _ => {}
            },
            '\u{9b}' => skip_csi(&mut chars),
            // A colour whose escape character was lost on the way (a paste, a log).
            '[' if is_colour(&mut chars.clone()) => skip_csi(&mut chars),
            '\r' => {
                chars.next_if_eq(&'\n');
                out.push('\n');
            }
            '\t' | '\n' => out.push(c),
            '\u{a0}' => out.push(' '),
            '\u{feff}' => {}
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// `4m`, `1;31m`, `m`, behind a bracket: nothing these tools print looks like that.
fn is_colour(chars: &mut Chars<'_>) -> bool {
    let parameters = (0..16).map_while(|_| chars.next_if(|c| c.is_ascii_digit() || *c == ';'));
    parameters.count() < 16 && chars.next() == Some('m')
}

/// Parameters, then one final character. Stops before anything that cannot be part of it, so that a cut escape does
/// not swallow the table.
fn skip_csi(chars: &mut Chars<'_>) {
    while chars.next_if(|c| matches!(c, '\u{20}'..='\u{3f}')).is_some() {}
    chars.next_if(|c| matches!(c, '\u{40}'..='\u{7e}'));
}

/// Never over a line end.
fn skip_string(chars: &mut Chars<'_>) {
    while let Some(c) = chars.next_if(|c| !matches!(c, '\n' | '\r')) {
        match c {
            '\u{7}' => return,
            '\u{1b}' => {
                chars.next_if_eq(&'\\');
                return;
            }
            _ => {}
        }
    }
}

/// The JSON document of a tool, with warnings before and behind it. None: there is none.
pub(super) fn json(text: &str) -> Option<Value> {
    // A document starts a line. Few lines of any output do start so: the attempts are bounded all the same.
    const ATTEMPTS: usize = 16;
    let mut at = 0;
    let starts = text.split_inclusive('\n').filter_map(|line| {
        let start = at + line.len() - line.trim_start().len();
        at += line.len();
        line.trim_start().starts_with(['{', '[']).then_some(start)
    });
    starts.take(ATTEMPTS).find_map(|start| {
        let mut documents = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
        let value = documents.next()?.ok()?;
        let says_something = match &value {
            Value::Object(map) => !map.is_empty(),
            // Not `[N/A]` and not `[0]`, which is no JSON of ours.
            Value::Array(items) => items.iter().all(Value::is_object),
            _ => false,
        };
        says_something.then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::{clean, json};

    #[test]
    fn escapes_go_wherever_they_stand() {
        for (text, want) in [
            ("\u{1b}[4m\tGPU0\u{1b}[0m", "\tGPU0"),
            ("NV\u{1b}[1;31m1\u{1b}[m8", "NV18"),
            ("\u{1b}]0;title\u{7}GPU0", "GPU0"),
            ("\u{1b}]0;title\u{1b}\\GPU0", "GPU0"),
            ("\u{9b}4mGPU0\u{1b}(B", "GPU0"),
            ("a\r\nb\rc\0\u{8}", "a\nb\nc"),
            ("\u{feff}\tGPU0", "\tGPU0"),
            ("cut \u{1b}[\tGPU0", "cut \tGPU0"),
            ("cut \u{1b}]never ends\n\tGPU0", "cut \n\tGPU0"),
            ("\u{1b}", ""),
            ("[4m\tGPU0[0m [N/A] [1", "\tGPU0 [N/A] [1"),
        ] {
            assert_eq!(clean(text), want, "{text:?}");
        }
    }

    #[test]
    fn json_between_warnings() {
        assert!(json("WARNING: old driver\n  [{\"gpu\": 0}]\nbye").is_some());
        assert!(json("[N/A]\n{\"card0\": {}}").is_some());
        for none in ["", "GPU0 {", "[Not Supported]", "[0]", "{\"gpu\": ", "{}"] {
            assert!(json(none).is_none(), "{none}");
        }
    }
}
