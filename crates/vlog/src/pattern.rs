//! Format of log lines: patterns of conversions, as in `vlog/set PATTERN:destination:pattern`
//! (ovs-appctl(8)).
//!
//! A conversion is `%`, flags (`-` for left, `0` for zeros), a minimum width, a letter, and for dates a
//! format in braces. The date formats are those of strftime(3) in their common part; `#` is a digit of the
//! fraction of a second.

use crate::syslog;
use std::fmt::Write as _;

/// Longest pattern.
const MAX_BYTES: usize = 1024;
/// Greatest width of one conversion.
const MAX_WIDTH: usize = 255;

/// Fields of a line.
pub(super) struct Line<'a> {
    pub(super) program: &'a str,
    pub(super) module: &'a str,
    pub(super) level: &'a str,
    /// Facility of syslog (RFC 5424).
    pub(super) facility: u8,
    pub(super) message: &'a str,
    pub(super) thread: &'a str,
    pub(super) sequence: u64,
    pub(super) wall_ms: u64,
    pub(super) uptime_ms: u64,
}

/// A pattern that was checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pattern {
    text: String,
    parts: Vec<PatternPart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternPart {
    Text(String),
    Conversion { left: bool, zeros: bool, width: usize, letter: char, format: String },
}

/// Letters of conversions: program, syslog level, module, local and universal date, host, message, sequence, newline,
/// level, process, time since the start, thread.
const LETTERS: &str = "ABcdDEmNnpPrtT%";

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// The syntax error.
    pub(super) fn parse(text: &str) -> Result<Pattern, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("a log pattern of {} bytes; {MAX_BYTES} are the most", text.len()));
        }
        let (mut parts, mut plain) = (Vec::new(), String::new());
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            if c != '%' {
                plain.push(c);
                continue;
            }
            if !plain.is_empty() {
                parts.push(PatternPart::Text(std::mem::take(&mut plain)));
            }
            let (mut left, mut zeros, mut width) = (false, false, 0);
            while let Some(flag) = rest.next_if(|c| *c == '-' || *c == '0') {
                left |= flag == '-';
                zeros |= flag == '0';
            }
            while let Some(digit) = rest.peek().and_then(|c| c.to_digit(10)) {
                rest.next();
                width = (width * 10 + digit as usize).min(MAX_WIDTH);
            }
            let letter = rest.next().filter(|c| LETTERS.contains(*c));
            let letter =
                letter.ok_or_else(|| format!("log pattern {text:?}: % is followed by none of {LETTERS}"))?;
            let mut format = String::new();
            if rest.next_if_eq(&'{').is_some() {
                let mut closed = false;
                for c in rest.by_ref() {
                    closed = c == '}';
                    if closed {
                        break;
                    }
                    format.push(c);
                }
                if !closed {
                    return Err(format!("log pattern {text:?}: a brace is not closed"));
                }
            }
            parts.push(PatternPart::Conversion { left, zeros, width, letter, format });
        }
        if !plain.is_empty() {
            parts.push(PatternPart::Text(plain));
        }
        Ok(Pattern { text: text.to_string(), parts })
    }

    /// The original text.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// One line.
    pub(super) fn render(&self, line: &Line<'_>) -> String {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                PatternPart::Text(text) => out.push_str(text),
                PatternPart::Conversion { left, zeros, width, letter, format } => {
                    let value = convert(*letter, format, line);
                    let pad = width.saturating_sub(value.chars().count());
                    let fill = if *zeros && !*left { '0' } else { ' ' };
                    if *left {
                        out += &value;
                    }
                    out.extend(std::iter::repeat_n(fill, pad));
                    if !*left {
                        out += &value;
                    }
                }
            }
        }
        out
    }
}

fn convert(letter: char, format: &str, line: &Line<'_>) -> String {
    match letter {
        'A' => line.program.to_string(),
        'B' => syslog::priority(line.facility, line.level).to_string(),
        'c' => line.module.to_string(),
        // The only time zone of the daemon is UTC.
        'd' | 'D' if format.is_empty() => date("%Y-%m-%d %H:%M:%S", line.wall_ms),
        'd' | 'D' => date(format, line.wall_ms),
        'E' => host(),
        'm' => line.message.to_string(),
        'N' => line.sequence.to_string(),
        'n' => "\n".to_string(),
        'p' => line.level.to_string(),
        'P' => std::process::id().to_string(),
        'r' => line.uptime_ms.to_string(),
        't' => line.thread.to_string(),
        'T' if line.thread.is_empty() => String::new(),
        'T' => format!("({})", line.thread),
        _ => "%".to_string(),
    }
}

fn host() -> String {
    // By a system call: threads without files log, too.
    sys::machine::host_name()
}

/// A date in UTC, in the format of strftime(3), with `#` for digits of the fraction of a second.
pub fn date(format: &str, wall_ms: u64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let days = wall_ms / 86_400_000;
    let (year, month, day, day_of_year) = super::civil(days as i64);
    let s = wall_ms / 1000 % 86_400;
    let (h, m, s) = (s / 3600, s / 60 % 60, s % 60);
    let fraction = format!("{:03}", wall_ms % 1000);
    let mut digits = fraction.chars();
    let (mut out, mut rest) = (String::new(), format.chars());
    while let Some(c) = rest.next() {
        if c == '#' {
            out.push(digits.next().unwrap_or('0'));
            continue;
        }
        if c != '%' {
            out.push(c);
            continue;
        }
        // Writing to a string cannot fail.
        let _infallible = match rest.next() {
            Some('Y') => write!(out, "{year:04}"),
            Some('y') => write!(out, "{:02}", year.rem_euclid(100)),
            Some('m') => write!(out, "{month:02}"),
            Some('b' | 'h') => write!(out, "{}", MONTHS[month as usize - 1]),
            Some('d') => write!(out, "{day:02}"),
            Some('e') => write!(out, "{day:>2}"),
            Some('j') => write!(out, "{day_of_year:03}"),
            Some('a') => write!(out, "{}", DAYS[(days % 7) as usize]),
            Some('H') => write!(out, "{h:02}"),
            Some('M') => write!(out, "{m:02}"),
            Some('S') => write!(out, "{s:02}"),
            Some('T') => write!(out, "{h:02}:{m:02}:{s:02}"),
            Some('F') => write!(out, "{year:04}-{month:02}-{day:02}"),
            Some('s') => write!(out, "{}", wall_ms / 1000),
            Some('z') => write!(out, "+0000"),
            Some('Z') => write!(out, "UTC"),
            Some('%') => write!(out, "%"),
            Some(other) => write!(out, "%{other}"),
            None => write!(out, "%"),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(message: &str) -> Line<'_> {
        Line {
            program: "ovs-vswitchd",
            module: "bridge",
            level: "WARN",
            facility: 3,
            message,
            thread: "handler0",
            sequence: 7,
            wall_ms: 951_827_696_789,
            uptime_ms: 1234,
        }
    }

    #[test]
    fn lines() {
        let cases = [
            ("%m", "hello"),
            (
                "%D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%m",
                "2000-02-29T12:34:56.789Z|00007|bridge(handler0)|WARN|hello",
            ),
            ("[%-8p][%8p][%3p]", "[WARN    ][    WARN][WARN]"),
            ("%d{%a %b %e %T %y %j %F #}", "Tue Feb 29 12:34:56 00 060 2000-02-29 7"),
            ("%d", "2000-02-29 12:34:56"),
            ("<%B>%A:%r%%%t", "<28>ovs-vswitchd:1234%handler0"),
            ("", ""),
        ];
        for (pattern, expected) in cases {
            assert_eq!(Pattern::parse(pattern).unwrap().render(&line("hello")), expected, "{pattern}");
        }
    }

    #[test]
    fn patterns_that_are_none() {
        for (pattern, why) in
            [("%", "followed"), ("a%z", "followed"), ("%d{%Y", "brace"), ("%99", "followed")]
        {
            let error = Pattern::parse(pattern).unwrap_err();
            assert!(error.contains(why), "{pattern}: {error}");
        }
        assert!(Pattern::parse(&"x".repeat(MAX_BYTES + 1)).is_err());
        assert_eq!(Pattern::parse("%99999999999p").unwrap().render(&line("")).len(), MAX_WIDTH);
    }
}
