//! The arguments of a command, as a value of its row ([`Arguments`]): their text in lists of commands, their number and
//! their parser come from one declaration.
//!
//! Kinds are [`Word`], [`Parsed`], [`Optional`] and [`Several`], `()` for none, and tuples of kinds, in order. A command
//! with a grammar of its own has a [`Form`]. Errors come in the order of the words, and before those of the handler; where
//! Open vSwitch looks for a bridge first, later words stay text that the handler reads.

use std::ops::RangeInclusive;

/// A declaration of arguments.
pub(super) trait Arguments: Copy + Sync + 'static {
    /// The parsed arguments.
    type Value<'a>;

    /// The arguments, as `list-commands` shows them.
    fn usage(&self) -> String;

    /// Number of words.
    fn bounds(&self) -> RangeInclusive<usize>;

    /// Parses words, whose number is within the bounds.
    ///
    /// # Errors
    /// A word is not valid: the error of the command.
    fn parse<'a>(&self, words: &'a [String]) -> Result<Self::Value<'a>, String>;
}

/// No arguments.
impl Arguments for () {
    type Value<'a> = ();

    fn usage(&self) -> String {
        String::new()
    }

    fn bounds(&self) -> RangeInclusive<usize> {
        0..=0
    }

    fn parse(&self, _: &[String]) -> Result<(), String> {
        Ok(())
    }
}

/// A word with this name in the usage, taken as it is.
#[derive(Clone, Copy)]
pub(super) struct Word(pub(super) &'static str);

impl Arguments for Word {
    type Value<'a> = &'a str;

    fn usage(&self) -> String {
        self.0.to_string()
    }

    fn bounds(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn parse<'a>(&self, words: &'a [String]) -> Result<&'a str, String> {
        Ok(words.first().map_or("", String::as_str))
    }
}

/// A word with this name in the usage, and its parser.
pub(super) struct Parsed<T>(pub(super) &'static str, pub(super) fn(&str) -> Result<T, String>);

impl<T> Clone for Parsed<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Parsed<T> {}

impl<T: 'static> Arguments for Parsed<T> {
    type Value<'a> = T;

    fn usage(&self) -> String {
        self.0.to_string()
    }

    fn bounds(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn parse(&self, words: &[String]) -> Result<T, String> {
        self.1(Word(self.0).parse(words)?)
    }
}

/// Arguments that may be left out. Before others, they are there if more words follow than the others need.
#[derive(Clone, Copy)]
pub(super) struct Optional<A>(pub(super) A);

impl<A: Arguments> Arguments for Optional<A> {
    type Value<'a> = Option<A::Value<'a>>;

    fn usage(&self) -> String {
        format!("[{}]", self.0.usage())
    }

    fn bounds(&self) -> RangeInclusive<usize> {
        0..=*self.0.bounds().end()
    }

    fn parse<'a>(&self, words: &'a [String]) -> Result<Self::Value<'a>, String> {
        if words.is_empty() { Ok(None) } else { self.0.parse(words).map(Some) }
    }
}

/// Arguments that lists of commands leave out, as those of OVS do.
#[derive(Clone, Copy)]
pub(super) struct Unlisted<A>(pub(super) A);

impl<A: Arguments> Arguments for Unlisted<A> {
    type Value<'a> = A::Value<'a>;

    fn usage(&self) -> String {
        String::new()
    }

    fn bounds(&self) -> RangeInclusive<usize> {
        self.0.bounds()
    }

    fn parse<'a>(&self, words: &'a [String]) -> Result<Self::Value<'a>, String> {
        self.0.parse(words)
    }
}

/// A list of words: usage, least and greatest number.
#[derive(Clone, Copy)]
pub(super) struct Several(pub(super) &'static str, pub(super) usize, pub(super) usize);

impl Arguments for Several {
    type Value<'a> = Vec<&'a str>;

    fn usage(&self) -> String {
        self.0.to_string()
    }

    fn bounds(&self) -> RangeInclusive<usize> {
        self.1..=self.2
    }

    fn parse<'a>(&self, words: &'a [String]) -> Result<Vec<&'a str>, String> {
        Ok(words.iter().map(String::as_str).collect())
    }
}

/// Arguments with a grammar of their own, such as options at any place: usage, least and greatest number of words, parser.
pub(super) struct Form<T>(
    pub(super) &'static str,
    pub(super) usize,
    pub(super) usize,
    pub(super) fn(&[String]) -> Result<T, String>,
);

impl<T> Clone for Form<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Form<T> {}

impl<T: 'static> Arguments for Form<T> {
    type Value<'a> = T;

    fn usage(&self) -> String {
        self.0.to_string()
    }

    fn bounds(&self) -> RangeInclusive<usize> {
        self.1..=self.2
    }

    fn parse(&self, words: &[String]) -> Result<T, String> {
        self.3(words)
    }
}

impl<A: Arguments, B: Arguments> Arguments for (A, B) {
    type Value<'a> = (A::Value<'a>, B::Value<'a>);

    fn usage(&self) -> String {
        format!("{} {}", self.0.usage(), self.1.usage())
    }

    fn bounds(&self) -> RangeInclusive<usize> {
        let (a, b) = (self.0.bounds(), self.1.bounds());
        a.start() + b.start()..=a.end() + b.end()
    }

    /// The first part has as many words as it takes and the second does not need.
    fn parse<'a>(&self, words: &'a [String]) -> Result<Self::Value<'a>, String> {
        let spare = words.len().saturating_sub(*self.1.bounds().start());
        let (first, second) = words.split_at(spare.min(*self.0.bounds().end()));
        Ok((self.0.parse(first)?, self.1.parse(second)?))
    }
}

impl<A: Arguments, B: Arguments, C: Arguments> Arguments for (A, B, C) {
    type Value<'a> = (A::Value<'a>, B::Value<'a>, C::Value<'a>);

    fn usage(&self) -> String {
        (self.0, (self.1, self.2)).usage()
    }

    fn bounds(&self) -> RangeInclusive<usize> {
        (self.0, (self.1, self.2)).bounds()
    }

    fn parse<'a>(&self, words: &'a [String]) -> Result<Self::Value<'a>, String> {
        let (a, (b, c)) = (self.0, (self.1, self.2)).parse(words)?;
        Ok((a, b, c))
    }
}

impl<A: Arguments, B: Arguments, C: Arguments, D: Arguments> Arguments for (A, B, C, D) {
    type Value<'a> = (A::Value<'a>, B::Value<'a>, C::Value<'a>, D::Value<'a>);

    fn usage(&self) -> String {
        (self.0, (self.1, self.2, self.3)).usage()
    }

    fn bounds(&self) -> RangeInclusive<usize> {
        (self.0, (self.1, self.2, self.3)).bounds()
    }

    fn parse<'a>(&self, words: &'a [String]) -> Result<Self::Value<'a>, String> {
        let (a, (b, c, d)) = (self.0, (self.1, self.2, self.3)).parse(words)?;
        Ok((a, b, c, d))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn usage_and_number_come_from_the_declaration() {
        let check = |usage: String, bounds: RangeInclusive<usize>, expected: (&str, usize, usize)| {
            assert_eq!((usage.as_str(), *bounds.start(), *bounds.end()), expected);
        };
        let number = Parsed("n", |text| text.parse::<u8>().map_err(|_| format!("bad {text}")));
        check(().usage(), ().bounds(), ("", 0, 0));
        let row = (Optional(Word("dp")), number);
        check(row.usage(), row.bounds(), ("[dp] n", 1, 2));
        let row = (Word("dp"), Several("port...", 1, 9));
        check(row.usage(), row.bounds(), ("dp port...", 2, 10));
        let row = (Word("a"), Optional(Word("b")), Optional(number), Word("d"));
        check(row.usage(), row.bounds(), ("a [b] [n] d", 2, 4));
    }

    #[test]
    fn optional_words_are_there_if_the_others_leave_some() {
        let number = Parsed("n", |text| text.parse::<u8>().map_err(|_| format!("bad {text}")));
        for (line, expected) in
            [("7", Ok((None, 7))), ("dp 7", Ok((Some("dp"), 7))), ("dp", Err("bad dp".to_string()))]
        {
            assert_eq!((Optional(Word("dp")), number).parse(&words(line)), expected, "{line}");
        }
        let row = (Word("a"), Optional(number), Optional(number));
        for (line, expected) in [
            ("x", Ok(("x", None, None))),
            ("x 1", Ok(("x", Some(1), None))),
            ("x 1 2", Ok(("x", Some(1), Some(2)))),
            // The first fault counts.
            ("x y z", Err("bad y".to_string())),
        ] {
            assert_eq!(row.parse(&words(line)), expected, "{line}");
        }
    }
}
