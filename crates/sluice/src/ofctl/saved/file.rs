//! The file: a line for each part of a bridge, its kind first, the rest as in the syntax of `ovs-ofctl(8)`.
//!
//! ```text
//! sluice-save 1
//! bridge br0
//! tlv-map {class=0xffff,type=0x1,len=8}->tun_metadata1
//! meter meter=3,pktps,bands=type=drop,rate=1000
//! group group_id=7,type=all,bucket=actions=output:1
//! flow table=3,priority=7,arp actions=meter:3,group:7
//! ```
//!
//! Empty lines and those that begin with `#` are skipped.

use anyhow::{Result, bail};
use std::fmt::Write as _;

/// First line of a file.
const HEAD: &str = "sluice-save 1";

/// Kind of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A mapping of tunnel metadata.
    TlvMap,
    Meter,
    Group,
    Flow,
}

const KINDS: [(&str, Kind); 4] =
    [("tlv-map", Kind::TlvMap), ("meter", Kind::Meter), ("group", Kind::Group), ("flow", Kind::Flow)];

/// A line of a bridge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Line<'t> {
    /// Its number in the file, from 1.
    pub(crate) number: usize,
    pub(crate) kind: Kind,
    /// The part, without the kind.
    pub(crate) text: &'t str,
}

/// A bridge of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Section<'t> {
    pub(crate) bridge: &'t str,
    pub(crate) lines: Vec<Line<'t>>,
}

impl<'t> Section<'t> {
    /// Its lines of a kind.
    pub(super) fn of(&self, kind: Kind) -> impl Iterator<Item = Line<'t>> {
        self.lines.iter().copied().filter(move |line| line.kind == kind)
    }
}

/// Begins a file.
pub(crate) fn begin() -> String {
    format!("{HEAD}\n")
}

/// Begins a bridge.
pub(super) fn bridge(out: &mut String, name: &str) {
    let _ = writeln!(out, "bridge {name}");
}

/// Adds a part of the bridge.
pub(super) fn part(out: &mut String, kind: Kind, text: &str) {
    let word = KINDS.iter().find(|(_, known)| *known == kind).map_or("", |(word, _)| word);
    let _ = writeln!(out, "{word} {}", text.trim());
}

/// The bridges of a file, in its order.
///
/// # Errors
/// The text is no such file, or has a line of an unknown kind: nothing of it is used then.
pub(crate) fn read(text: &str) -> Result<Vec<Section<'_>>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut lines = text.lines().enumerate().map(|(n, line)| (n + 1, line.trim()));
    match lines.next() {
        Some((_, HEAD)) => {}
        _ => bail!("1: not a file of 'sluice save': its first line is '{HEAD}'"),
    }
    for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let (word, text) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let text = text.trim_start();
        if word == "bridge" {
            if text.is_empty() || sections.iter().any(|section| section.bridge == text) {
                bail!("{number}: a bridge has a name, and occurs once");
            }
            sections.push(Section { bridge: text, lines: Vec::new() });
            continue;
        }
        let Some((_, kind)) = KINDS.iter().find(|(known, _)| *known == word) else {
            bail!("{number}: unknown kind '{word}': bridge, tlv-map, meter, group and flow are known");
        };
        let Some(section) = sections.last_mut() else { bail!("{number}: no bridge before it") };
        section.lines.push(Line { number, kind: *kind, text });
    }
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read() {
        let text = "sluice-save 1\n# by hand\n\nbridge br0\nflow  actions=drop\n\tgroup group_id=1,type=all\nbridge b 2\n";
        let sections = read(text).unwrap();
        assert_eq!(sections.iter().map(|s| s.bridge).collect::<Vec<_>>(), ["br0", "b 2"]);
        assert_eq!(sections[0].lines[0], Line { number: 5, kind: Kind::Flow, text: "actions=drop" });
        assert_eq!(sections[0].of(Kind::Group).map(|line| line.number).collect::<Vec<_>>(), [6]);
        for (bad, error) in [
            ("", "1: not a file of 'sluice save': its first line is 'sluice-save 1'"),
            ("sluice-save 2\n", "1: not a file of 'sluice save': its first line is 'sluice-save 1'"),
            ("sluice-save 1\nflow actions=drop\n", "2: no bridge before it"),
            ("sluice-save 1\nbridge\n", "2: a bridge has a name, and occurs once"),
            ("sluice-save 1\nbridge a\nbridge a\n", "3: a bridge has a name, and occurs once"),
            (
                "sluice-save 1\nbridge a\nrule actions=drop",
                "3: unknown kind 'rule': bridge, tlv-map, meter, group and flow are known",
            ),
        ] {
            assert_eq!(read(bad).unwrap_err().to_string(), error, "{bad:?}");
        }
    }
}
