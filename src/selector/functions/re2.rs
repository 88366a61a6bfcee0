//! RE2's syntax, as Go's `regexp/syntax` reads it, written out again for the `regex` crate.
//!
//! The two languages differ where a reader does not look: `[a&&b]`, `[[a]]`, `\<`, `a++`, `(?x)`. Nothing is
//! handed through: every piece is read as RE2 reads it and written so that the engine can read it in one way
//! only. Flags are written with each piece, groups never capture: nobody asks for captures.

/// Go's limit on one repetition, and on the product of nested ones.
const MAX_REPEAT: u64 = 1000;
/// Depth of groups. Go takes 1000; the engine's own limit counts other things as well.
const MAX_DEPTH: usize = 40;

const ASCII_CLASSES: &[&str] = &[
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];
/// Not `C`: whether what is unassigned belongs to it differs between versions of Go.
const CATEGORIES: &[&str] = &[
    "Cc", "Cf", "Co", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl", "No", "P", "Pc", "Pd",
    "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs",
];
/// What matches nothing: a surrogate may be written, but is in no text.
const NOTHING: &str = "[^\\x{0}-\\x{10FFFF}]";

/// A pattern for the engine, and how much there is to follow at each byte of a text.
#[derive(Debug)]
pub(super) struct Translated {
    pub(super) pattern: String,
    pub(super) size: u64,
}

/// The error has Go's words.
pub(super) fn translate(pattern: &str) -> Result<Translated, String> {
    let mut parser = Parser {
        rest: pattern,
        out: String::with_capacity(2 * pattern.len()),
        flags: Flags::default(),
        open: vec![],
        here: Sum::default(),
    };
    parser.run()?;
    let size = parser.here.size.max(1);
    Ok(Translated {
        pattern: parser.out,
        size,
    })
}

#[derive(Clone, Copy, Default)]
struct Flags {
    fold: bool,
    multi_line: bool,
    dot_newline: bool,
    lazy: bool,
}

/// The last piece, which a repetition would repeat.
#[derive(Clone, Copy)]
struct Atom {
    size: u64,
    /// Product of the repetitions in it.
    repeats: u64,
    repeated: bool,
}

/// What stands in a group so far.
#[derive(Clone, Copy, Default)]
struct Sum {
    size: u64,
    repeats: u64,
    last: Option<Atom>,
}

struct Parser<'p> {
    rest: &'p str,
    out: String,
    flags: Flags,
    /// Of each open group: the flags and the sum outside.
    open: Vec<(Flags, Sum)>,
    here: Sum,
}

impl Parser<'_> {
    fn run(&mut self) -> Result<(), String> {
        while let Some(c) = self.peek() {
            match c {
                '(' if self.rest.starts_with("(?") => self.flags_or_group()?,
                '(' => {
                    self.skip(1);
                    self.open_group(self.flags)?;
                }
                ')' => {
                    self.skip(1);
                    let (flags, mut outside) = self.open.pop().ok_or("unexpected )")?;
                    let (size, repeats) = (self.here.size, self.here.repeats);
                    outside.size = outside.size.saturating_add(size);
                    outside.repeats = outside.repeats.max(repeats);
                    outside.last = Some(Atom {
                        size,
                        repeats,
                        repeated: false,
                    });
                    (self.flags, self.here) = (flags, outside);
                    self.out.push(')');
                }
                '|' => {
                    self.skip(1);
                    self.here.last = None;
                    self.out.push('|');
                }
                '*' => self.repeat_with(1, 0, None)?,
                '+' => self.repeat_with(1, 1, None)?,
                '?' => self.repeat_with(1, 0, Some(1))?,
                '{' => match counts(self.rest) {
                    Some((length, least, most)) => {
                        if least > MAX_REPEAT || most.is_some_and(|most| most > MAX_REPEAT || least > most) {
                            return Err("invalid repeat count".to_owned());
                        }
                        self.repeat_with(length, least, most)?;
                    }
                    None => self.literal(),
                },
                '^' => self.fixed(1, if self.flags.multi_line { "(?m:^)" } else { "\\A" }),
                '$' => self.fixed(1, if self.flags.multi_line { "(?m:$)" } else { "\\z" }),
                '.' => {
                    let any = if self.flags.dot_newline { "(?s:.)" } else { "[^\\n]" };
                    self.skip(1);
                    self.atom(any, 8);
                }
                '[' => self.class()?,
                '\\' => self.escape()?,
                _ => self.literal(),
            }
        }
        if self.open.is_empty() {
            Ok(())
        } else {
            Err("missing closing )".to_owned())
        }
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.skip(c.len_utf8());
        Some(c)
    }

    /// `bytes` end at a character.
    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or("");
    }

    fn atom(&mut self, text: &str, size: u64) {
        self.out.push_str(text);
        self.here.size = self.here.size.saturating_add(size);
        self.here.repeats = self.here.repeats.max(1);
        self.here.last = Some(Atom {
            size,
            repeats: 1,
            repeated: false,
        });
    }

    fn fixed(&mut self, bytes: usize, text: &str) {
        self.skip(bytes);
        self.atom(text, 1);
    }

    fn literal(&mut self) {
        if let Some(c) = self.next() {
            self.code_point(c.into());
        }
    }

    fn code_point(&mut self, c: u32) {
        match char::from_u32(c) {
            Some(_) if self.flags.fold => self.atom(&format!("(?i:\\x{{{c:x}}})"), 3),
            Some(c) if c.is_ascii_alphanumeric() => self.atom(c.encode_utf8(&mut [0; 4]), 1),
            Some(_) => self.atom(&format!("\\x{{{c:x}}}"), 1),
            None => self.atom(NOTHING, 1),
        }
    }

    /// `most` is `None` where there is no limit.
    fn repeat_with(&mut self, length: usize, least: u64, most: Option<u64>) -> Result<(), String> {
        self.skip(length);
        let other_greed = self.rest.starts_with('?');
        self.skip(usize::from(other_greed));
        let last = self.here.last.ok_or("missing argument to repetition operator")?;
        if last.repeated {
            return Err("invalid nested repetition operator".to_owned());
        }
        let times = most.unwrap_or(least);
        let repeats = match (most, times) {
            (Some(0), _) => 0,
            (_, times) => last.repeats.saturating_mul(times.max(1)),
        };
        if repeats > MAX_REPEAT {
            return Err("invalid repeat count".to_owned());
        }
        let size = last.size.saturating_mul(times.max(1));
        self.here.size = self.here.size.saturating_add(size - last.size);
        self.here.repeats = self.here.repeats.max(repeats);
        self.here.last = Some(Atom {
            size,
            repeats,
            repeated: true,
        });
        match most {
            Some(most) => self.out.push_str(&format!("{{{least},{most}}}")),
            None => self.out.push_str(&format!("{{{least},}}")),
        }
        if other_greed != self.flags.lazy {
            self.out.push('?');
        }
        Ok(())
    }

    fn open_group(&mut self, inside: Flags) -> Result<(), String> {
        if self.open.len() >= MAX_DEPTH {
            return Err("expression nests too deeply".to_owned());
        }
        self.open.push((self.flags, std::mem::take(&mut self.here)));
        self.flags = inside;
        self.out.push_str("(?:");
        Ok(())
    }

    /// `(?i)`, `(?i:`, `(?P<name>` and `(?<name>`.
    fn flags_or_group(&mut self) -> Result<(), String> {
        self.skip(2);
        if let Some(named) = self.rest.strip_prefix("P<").or(self.rest.strip_prefix('<')) {
            let (name, rest) = named.split_once('>').ok_or("invalid named capture")?;
            let fine = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
            if name.is_empty() || !name.bytes().all(fine) {
                return Err("invalid named capture".to_owned());
            }
            self.rest = rest;
            return self.open_group(self.flags);
        }
        let (mut flags, mut on, mut seen) = (self.flags, true, false);
        while let Some(c) = self.next() {
            match c {
                'i' => flags.fold = on,
                'm' => flags.multi_line = on,
                's' => flags.dot_newline = on,
                'U' => flags.lazy = on,
                '-' if on => {
                    (on, seen) = (false, false);
                    continue;
                }
                ':' if on || seen => return self.open_group(flags),
                ')' if on || seen => {
                    self.flags = flags;
                    // As in Go: `a*(?i)*` is `(a*)*`.
                    if let Some(last) = &mut self.here.last {
                        last.repeated = false;
                    }
                    return Ok(());
                }
                _ => break,
            }
            seen = true;
        }
        Err("invalid or unsupported Perl syntax".to_owned())
    }

    /// At a `\` outside of a class.
    fn escape(&mut self) -> Result<(), String> {
        match self.rest[1..].chars().next() {
            Some('A') => self.fixed(2, "\\A"),
            Some('z') => self.fixed(2, "\\z"),
            // The engine's own know all of Unicode.
            Some('b') => self.fixed(2, "(?-u:\\b)"),
            Some('B') => self.fixed(2, "(?-u:\\B)"),
            Some('Q') => {
                self.skip(2);
                let (quoted, rest) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
                quoted.chars().for_each(|c| self.code_point(c.into()));
                self.rest = rest;
            }
            _ => match self.named_class()? {
                Some((class, size)) if self.flags.fold => self.atom(&format!("(?i:[{class}])"), size),
                Some((class, size)) => self.atom(&format!("[{class}]"), size),
                None => {
                    let c = self.escaped()?;
                    self.code_point(c);
                }
            },
        }
        Ok(())
    }

    /// `\d`, `\pL`, `\p{Greek}`: as an item of a class, and its size.
    fn named_class(&mut self) -> Result<Option<(String, u64)>, String> {
        let Some(letter) = self.rest.strip_prefix('\\').and_then(|r| r.chars().next()) else {
            return Ok(None);
        };
        let perl = match letter {
            'd' => "0-9",
            'D' => "[^0-9]",
            's' => "\\t\\n\\x0C\\r\\x20",
            'S' => "[^\\t\\n\\x0C\\r\\x20]",
            'w' => "0-9A-Za-z_",
            'W' => "[^0-9A-Za-z_]",
            'p' | 'P' => {
                self.skip(2);
                return self.unicode_class(letter == 'P').map(|class| Some((class, 64)));
            }
            _ => return Ok(None),
        };
        self.skip(2);
        Ok(Some((perl.to_owned(), 8)))
    }

    /// Behind `\p`.
    fn unicode_class(&mut self, negated: bool) -> Result<String, String> {
        let unknown = "invalid character class range";
        let name = match self.rest.strip_prefix('{') {
            Some(named) => {
                let (name, rest) = named.split_once('}').ok_or(unknown)?;
                self.rest = rest;
                name
            }
            None => {
                let (name, rest) = self.rest.split_at(self.peek().ok_or(unknown)?.len_utf8());
                self.rest = rest;
                name
            }
        };
        let (name, negated) = match name.strip_prefix('^') {
            Some(name) => (name, !negated),
            None => (name, negated),
        };
        let script = name.len() > 2
            && name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
        let members = match name {
            "Any" => "\\x{0}-\\x{10FFFF}".to_owned(),
            "Cs" => NOTHING.to_owned(),
            name if CATEGORIES.contains(&name) => format!("\\p{{gc={name}}}"),
            name if script => format!("\\p{{sc={name}}}"),
            _ => return Err(unknown.to_owned()),
        };
        Ok(if negated { format!("[^{members}]") } else { members })
    }

    /// At a `[`.
    fn class(&mut self) -> Result<(), String> {
        self.skip(1);
        let mut class = "[".to_owned();
        if self.rest.starts_with('^') {
            self.skip(1);
            class.push('^');
        }
        let (mut first, mut size) = (true, 8_u64);
        while first || !self.rest.starts_with(']') {
            first = false;
            if let Some(name) = self.rest.strip_prefix("[:").and_then(|r| r.split_once(":]")) {
                let (name, rest) = name;
                if !ASCII_CLASSES.contains(&name.strip_prefix('^').unwrap_or(name)) {
                    return Err("invalid character class range".to_owned());
                }
                class.push_str(&format!("[:{name}:]"));
                self.rest = rest;
                continue;
            }
            if let Some((item, of)) = self.named_class()? {
                class.push_str(&item);
                size = size.max(of);
                continue;
            }
            let low = self.class_char()?;
            let mut high = low;
            if self.rest.starts_with('-') && self.rest.len() > 1 && !self.rest.starts_with("-]") {
                self.skip(1);
                high = self.class_char()?;
            }
            if high < low {
                return Err("invalid character class range".to_owned());
            }
            // No text has a surrogate.
            let surrogate = |c: u32| char::from_u32(c).is_none();
            let low = if surrogate(low) { 0xE000 } else { low };
            let high = if surrogate(high) { 0xD7FF } else { high };
            if low <= high {
                class.push_str(&format!("\\x{{{low:x}}}-\\x{{{high:x}}}"));
            } else {
                class.push_str(NOTHING);
            }
        }
        self.skip(1);
        class.push(']');
        match self.flags.fold {
            true => self.atom(&format!("(?i:{class})"), size),
            false => self.atom(&class, size),
        }
        Ok(())
    }

    fn class_char(&mut self) -> Result<u32, String> {
        match self.peek() {
            None => Err("missing closing ]".to_owned()),
            Some('\\') => self.escaped(),
            Some(c) => {
                self.skip(c.len_utf8());
                Ok(c.into())
            }
        }
    }

    /// At a `\` that stands for one character.
    fn escaped(&mut self) -> Result<u32, String> {
        self.skip(1);
        let invalid = || "invalid escape sequence".to_owned();
        let c = self.next().ok_or("trailing backslash at end of expression")?;
        let octal = |c: char| c.to_digit(8);
        Ok(match c {
            'a' => 7,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'v' => 11,
            // A single digit would be a reference back, which RE2 has not.
            '0' | '1'..='7' if c == '0' || self.peek().and_then(octal).is_some() => {
                let mut value = octal(c).unwrap_or(0);
                for _ in 0..2 {
                    let Some(digit) = self.peek().and_then(octal) else {
                        break;
                    };
                    self.skip(1);
                    value = value * 8 + digit;
                }
                value
            }
            'x' => {
                let digits = match self.rest.strip_prefix('{') {
                    Some(braced) => {
                        let (digits, rest) = braced.split_once('}').ok_or_else(invalid)?;
                        self.rest = rest;
                        digits.trim_start_matches('0').get(..).filter(|_| !digits.is_empty())
                    }
                    None => {
                        let two = self.rest.get(..2);
                        self.skip(2);
                        two
                    }
                };
                let digits = digits.ok_or_else(invalid)?;
                if digits.len() > 6 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return Err(invalid());
                }
                let value = u32::from_str_radix(digits, 16).unwrap_or(0);
                if value > char::MAX.into() {
                    return Err(invalid());
                }
                value
            }
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => c.into(),
            _ => return Err(invalid()),
        })
    }
}

/// `{2}`, `{2,}`, `{2,3}`: its length, the least and the most. Anything else is no repetition but text.
fn counts(text: &str) -> Option<(usize, u64, Option<u64>)> {
    let (inside, _) = text.strip_prefix('{')?.split_once('}')?;
    let length = inside.len() + 2;
    let number = |digits: &str| {
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let zeros = digits.len() > 1 && digits.starts_with('0');
        (plain && !zeros).then(|| digits.parse().unwrap_or(u64::MAX))
    };
    Some(match inside.split_once(',') {
        None => {
            let exactly = number(inside)?;
            (length, exactly, Some(exactly))
        }
        Some((least, "")) => (length, number(least)?, None),
        Some((least, most)) => (length, number(least)?, Some(number(most)?)),
    })
}
