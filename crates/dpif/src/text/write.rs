//! Prints `name(field=value/mask,...)`.

use flow::MacAddr;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Number format.
#[derive(Clone, Copy)]
pub(crate) enum Base {
    Dec,
    Hex,
}

/// A number in C's `%#x`: zero has no prefix.
pub(crate) fn hex(n: u128) -> String {
    if n == 0 { "0".into() } else { format!("{n:#x}") }
}

/// The fields of one header being printed.
pub(crate) struct Fields {
    /// Print unmatched fields, too.
    pub(crate) verbose: bool,
    text: String,
    /// A field was printed, or is matched.
    pub(crate) any: bool,
}

impl Fields {
    pub(crate) fn new(verbose: bool) -> Fields {
        Fields { verbose, text: String::new(), any: false }
    }

    fn put(&mut self, name: &str, value: &dyn std::fmt::Display, is_wild: bool, mask: Option<String>) {
        if is_wild && !self.verbose {
            return;
        }
        self.any = true;
        let comma = if self.text.is_empty() { "" } else { "," };
        let _ = write!(self.text, "{comma}{name}={value}");
        if let Some(mask) = mask {
            let _ = write!(self.text, "/{mask}");
        }
    }

    pub(crate) fn number(&mut self, name: &str, value: u64, mask: u64, full: u64, base: Base) {
        let text = match base {
            Base::Dec => value.to_string(),
            Base::Hex => hex(value.into()),
        };
        self.put(name, &text, mask == 0, (mask != full).then(|| hex(mask.into())));
    }

    pub(crate) fn mac(&mut self, name: &str, value: [u8; 6], mask: [u8; 6]) {
        let partial = (mask != [0xff; 6]).then(|| MacAddr(mask).to_string());
        self.put(name, &MacAddr(value), mask == [0; 6], partial);
    }

    pub(crate) fn ipv4(&mut self, name: &str, value: u32, mask: u32) {
        let partial = (mask != u32::MAX).then(|| Ipv4Addr::from(mask).to_string());
        self.put(name, &Ipv4Addr::from(value), mask == 0, partial);
    }

    pub(crate) fn ipv6(&mut self, name: &str, value: [u8; 16], mask: [u8; 16]) {
        let partial = (mask != [0xff; 16]).then(|| Ipv6Addr::from(mask).to_string());
        self.put(name, &Ipv6Addr::from(value), mask == [0; 16], partial);
    }

    /// A field with preformatted text.
    pub(crate) fn word(&mut self, name: &str, value: &str) {
        self.put(name, &value, false, None);
    }

    /// An item without `=`.
    pub(crate) fn raw(&mut self, text: &str) {
        self.any = true;
        if !self.text.is_empty() {
            self.text.push(',');
        }
        self.text += text;
    }

    /// Whether no field was printed.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// `name(fields)`.
    pub(crate) fn finish(self, name: &str) -> String {
        format!("{name}({})", self.text)
    }
}

/// Flags by name: `a|b` if all are matched, `+a-b` if some, `0/0` if none.
pub(crate) fn flags(value: u32, mask: u32, names: &[(u32, &str)], all: u32) -> String {
    if mask & all == 0 {
        return "0/0".into();
    }
    let in_mask = names.iter().filter(|(bit, _)| mask & bit != 0);
    if mask & all != all {
        return in_mask.map(|(bit, n)| format!("{}{n}", if value & bit != 0 { '+' } else { '-' })).collect();
    }
    let set: Vec<&str> = in_mask.filter(|(bit, _)| value & bit != 0).map(|(_, n)| *n).collect();
    if set.is_empty() { "0".into() } else { set.join("|") }
}
