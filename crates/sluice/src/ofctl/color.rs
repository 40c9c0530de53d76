//! Colours of rules (`--color`), with the codes of `OVS_COLORS` as ovs-ofctl(8) names them.

use std::io::IsTerminal;

/// When to use colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum When {
    /// Never.
    #[default]
    Never,
    /// Always.
    Always,
    /// On a terminal.
    Auto,
}

impl When {
    /// `always`, `never`, `auto`, or a synonym of GNU tools.
    pub(super) fn parse(text: &str) -> Option<When> {
        Some(match text {
            "always" | "yes" | "force" => When::Always,
            "never" | "no" | "none" => When::Never,
            "auto" | "tty" | "if-tty" => When::Auto,
            _ => return None,
        })
    }

    /// Whether the standard output gets colours.
    pub(super) fn on_output(self) -> bool {
        self == When::Always || self == When::Auto && std::io::stdout().is_terminal()
    }
}

/// A kind of text, and its colour in `OVS_COLORS`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Actions,
    Drop,
    Learn,
    Param,
    Paren,
    Special,
    Value,
}

/// Keys of `OVS_COLORS` with the default codes.
const CODES: [(Kind, &str, &str); 7] = [
    (Kind::Actions, "ac", "1;31"),
    (Kind::Drop, "dr", "34"),
    (Kind::Learn, "le", "31"),
    (Kind::Param, "pm", "36"),
    (Kind::Paren, "pr", "35"),
    (Kind::Special, "sp", "33"),
    (Kind::Value, "vl", "32"),
];

/// Actions whose argument after a colon is an ordinary parameter.
const PARAMETERS: [&str; 6] = ["note", "set_queue", "meter", "probability", "collector_set_id", "zone"];
/// Keys of rules with a meaning for the order of tables and rules.
const SPECIAL: [&str; 2] = ["table", "priority"];
/// Words within actions that stand for themselves.
const FLAGS: [&str; 5] = ["commit", "force", "pop_queue", "random", "persistent"];
/// Actions without an argument, other than ports.
const BARE: [&str; 7] =
    ["dec_ttl", "strip_vlan", "pop_vlan", "ct_clear", "exit", "clear_actions", "dec_mpls_ttl"];

/// Writes text with colours.
struct Painter {
    codes: Vec<(Kind, String)>,
    out: String,
    /// Kinds of the open parentheses.
    open: Vec<Option<Kind>>,
    in_actions: bool,
}

impl Painter {
    fn new(colors: &str) -> Painter {
        let given = |key: &str| {
            let mut pairs = colors.split(':').filter_map(|pair| pair.split_once('='));
            pairs.find(|(name, code)| *name == key && code.bytes().all(|b| b.is_ascii_digit() || b == b';'))
        };
        let code = |key, default: &str| given(key).map_or(default, |(_, code)| code).to_string();
        let codes = CODES.iter().map(|(kind, key, default)| (*kind, code(key, default))).collect();
        Painter { codes, out: String::new(), open: Vec::new(), in_actions: false }
    }

    fn paint(&mut self, kind: Option<Kind>, text: &str) {
        match kind.and_then(|kind| self.codes.iter().find(|(k, _)| *k == kind)) {
            Some((_, code)) => self.out += &format!("\x1b[{code}m\x1b[K{text}\x1b[m\x1b[K"),
            None => self.out += text,
        }
    }

    /// A word alone.
    fn bare(&self, word: &str) -> Option<Kind> {
        match word {
            "drop" => Some(Kind::Drop),
            _ if FLAGS.contains(&word) => Some(Kind::Value),
            _ if self.in_actions => BARE.contains(&word).then_some(Kind::Paren),
            _ => flow::text::PROTOCOL_NAMES.contains(&word).then_some(Kind::Value),
        }
    }

    /// One line; the value of a key has no colour.
    fn line(&mut self, line: &str) {
        (self.in_actions, self.open) = (false, Vec::new());
        // A message: its head has no colours, nor has the word before the actions.
        let is_message = line.contains("_FLOW_MOD");
        let (head, mut rest) = match line.split_once("): ").filter(|_| is_message) {
            Some((head, behind)) => line.split_at(head.len() + 3 + behind.find(' ').map_or(0, |at| at + 1)),
            None => ("", line),
        };
        self.out += head;
        while !rest.is_empty() {
            let end = rest.find([' ', ',', '=', '(', ')', ':', '-']).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(end);
            let next = behind.chars().next();
            let mut used = next.map_or(0, char::len_utf8);
            let with = &rest[..end + used];
            match next {
                Some('=') if word == "actions" => {
                    self.in_actions = true;
                    self.paint((!is_message).then_some(Kind::Actions), with);
                }
                Some('=') if !word.is_empty() => {
                    self.paint(Some(if SPECIAL.contains(&word) { Kind::Special } else { Kind::Param }), with);
                    used += self.value(&behind[1..]);
                }
                Some('(') => {
                    let kind = if word == "learn" { Kind::Learn } else { Kind::Paren };
                    self.paint(Some(kind), with);
                    self.open.push(Some(kind));
                }
                Some(')') => {
                    self.paint(self.bare(word), word);
                    let kind = self.open.pop().flatten();
                    self.paint(kind, ")");
                }
                Some(':')
                    if self.in_actions
                        && !word.is_empty()
                        && !word.bytes().all(|b| b.is_ascii_hexdigit()) =>
                {
                    let parameter = PARAMETERS.contains(&word);
                    self.paint(Some(if parameter { Kind::Param } else { Kind::Special }), with);
                }
                Some('-') if behind.starts_with("->") => {
                    self.out += word;
                    self.paint(Some(Kind::Special), "->");
                    used = 2;
                }
                Some(separator) => {
                    self.paint(self.bare(word), word);
                    self.out.push(separator);
                }
                None => self.paint(self.bare(word), word),
            }
            rest = &rest[end + used..];
        }
    }

    /// Writes the value of a key; returns its bytes.
    fn value(&mut self, text: &str) -> usize {
        let end = text.find([' ', ',', '(', ')']).unwrap_or(text.len());
        self.out += &text[..end];
        end
    }
}

/// Text of rules, a line each, in colours; other lines stay.
pub(super) fn rules(text: &str, colors: &str) -> String {
    let mut painter = Painter::new(colors);
    for line in text.split_inclusive('\n') {
        let (content, end) = line.strip_suffix('\n').map_or((line, ""), |content| (content, "\n"));
        match content.contains("actions=") {
            true => painter.line(content),
            false => painter.out += content,
        }
        painter.out += end;
    }
    painter.out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_have_the_colours_of_ovs_ofctl() {
        let plain = "NXST_FLOW reply (xid=0x4):\n cookie=0x0, table=1, priority=3,tcp,in_port=1 actions=ct(commit),load:0x5->NXM_NX_REG1[],drop\n";
        let expected = "NXST_FLOW reply (xid=0x4):\n ^36^cookie=^^0x0, ^33^table=^^1, ^33^priority=^^3,^32^tcp^^,^36^in_port=^^1 \
            ^1;31^actions=^^^35^ct(^^^32^commit^^^35^)^^,^33^load:^^0x5^33^->^^NXM_NX_REG1[],^34^drop^^\n";
        let shown =
            rules(plain, "").replace("\x1b[m\x1b[K", "^^").replace("m\x1b[K", "^").replace("\x1b[", "^");
        assert_eq!(shown, expected);
        assert!(rules("actions=drop", "dr=1:ac=bad").ends_with("\x1b[1m\x1b[Kdrop\x1b[m\x1b[K"));
        for text in ["", "actions=", "actions=:)(", "a=(,)=:->-", "é=ü actions=é:ü->)"] {
            let stripped = rules(text, "")
                .split('\x1b')
                .enumerate()
                .map(|(n, part)| if n == 0 { part } else { &part[part.find(['m', 'K']).unwrap_or(0) + 1..] })
                .collect::<String>();
            assert_eq!(stripped, text);
        }
    }
}
