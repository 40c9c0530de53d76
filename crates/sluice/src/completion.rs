//! Shell completion. `sluice completion SHELL` prints a short script; the script asks `sluice complete-words` for the
//! words that may stand at the cursor. Commands come from the tables of the tools, bridges, ports and tables from the
//! switch.

use std::time::Duration;

use clap::{CommandFactory as _, ValueEnum};

use crate::remote::Deadline;
use crate::{Cli, appctl, ofctl, pki, vsctl};

/// A shell that has a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Shell {
    /// GNU Bash
    Bash,
    /// Z shell
    Zsh,
    /// fish
    Fish,
}

const BASH: &str = "\
_sluice() {
    local IFS=$'\\n'
    COMPREPLY=($(sluice complete-words -- \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null))
}
complete -o default -F _sluice sluice
";
const ZSH: &str = "\
#compdef sluice
_sluice() {
    local -a found
    found=(\"${(@f)$(sluice complete-words -- \"${(@)words[2,CURRENT]}\" 2>/dev/null)}\")
    compadd -a found
}
# As a file of fpath, the first call defines the function and is itself a completion.
if [ \"$funcstack[1]\" = _sluice ]; then
    _sluice \"$@\"
else
    compdef _sluice sluice
fi
";
const FISH: &str = "\
complete -c sluice -f -a '(set -l before (commandline -opc); sluice complete-words -- $before[2..-1] (commandline -ct) 2>/dev/null)'
";

/// The script of a shell.
pub(crate) fn script(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
    }
}

/// Maximum wait for the switch, in seconds.
const PATIENCE_S: u32 = 2;

/// Source of names from the switch.
pub(crate) trait Source {
    /// Words of an answer of `sluice vsctl`; none without a switch.
    fn vsctl(&self, words: &[&str]) -> Vec<String>;
    /// Commands of the daemon.
    fn daemon(&self) -> Vec<String>;
}

/// The running switch.
pub(crate) struct Live;

impl Source for Live {
    fn vsctl(&self, words: &[&str]) -> Vec<String> {
        let timeout = format!("--timeout={PATIENCE_S}");
        let line: Vec<String> =
            std::iter::once(timeout.as_str()).chain(words.iter().copied()).map(String::from).collect();
        let text = vsctl::answer("sluice vsctl", &line).unwrap_or_default();
        text.lines().map(|line| line.trim_matches('"').to_string()).collect()
    }

    fn daemon(&self) -> Vec<String> {
        appctl::commands(Deadline::within(Duration::from_secs(PATIENCE_S.into()))).unwrap_or_default()
    }
}

/// The words that may stand at the last position.
pub(crate) fn candidates(words: &[String], source: &dyn Source) -> Vec<String> {
    let (current, before) = match words {
        [before @ .., current] => (current.as_str(), before),
        [] => ("", words),
    };
    let mut all = match before {
        [] => Cli::command()
            .get_subcommands()
            .filter(|c| !c.is_hide_set())
            .map(|c| c.get_name().to_string())
            .collect(),
        [tool, before @ ..] => of_tool(tool, before, current, source),
    };
    all.retain(|word| word.starts_with(current));
    all.sort();
    all.dedup();
    all
}

fn of_tool(tool: &str, before: &[String], current: &str, source: &dyn Source) -> Vec<String> {
    match tool {
        "vsctl" => of_vsctl(before, current, source),
        "ofctl" => of_ofctl(before, current, source),
        "appctl" | "dpctl" if current.starts_with('-') => {
            let own = if tool == "dpctl" { appctl::DPCTL_OPTIONS.as_slice() } else { &[] };
            let own = own.iter().filter(|option| option.starts_with("--"));
            own.chain(&appctl::OPTIONS).map(|option| option.to_string()).collect()
        }
        "appctl" | "dpctl" => match plain(before)[..] {
            [] => {
                let prefix = if tool == "dpctl" { "dpctl/" } else { "" };
                source
                    .daemon()
                    .iter()
                    .filter_map(|name| name.strip_prefix(prefix))
                    .map(String::from)
                    .collect()
            }
            [_] if tool == "appctl" => source.vsctl(&["list-br"]),
            _ => Vec::new(),
        },
        "save" if !current.starts_with('-') => source.vsctl(&["list-br"]),
        // The first word is a file, which the shell completes.
        "restore" if !current.starts_with('-') => match plain(before)[..] {
            [] => Vec::new(),
            _ => source.vsctl(&["list-br"]),
        },
        _ => {
            let cli = Cli::command();
            let found = cli.get_subcommands().find(|c| c.get_name() == tool);
            let arguments = || found.into_iter().flat_map(|c| c.get_arguments());
            let values = arguments().filter(|a| a.is_positional()).flat_map(|a| a.get_possible_values());
            let options = arguments().filter_map(|a| Some(format!("--{}", a.get_long()?)));
            values.map(|value| value.get_name().to_string()).chain(options).collect()
        }
    }
}

/// The help of a command names the kind of each argument.
fn of_ofctl(before: &[String], current: &str, source: &dyn Source) -> Vec<String> {
    let words = plain(before);
    let Some((name, args)) = words.split_first() else {
        return match current.starts_with('-') {
            true => [strings(ofctl::OPTIONS), strings(pki::OPTIONS)].concat(),
            false => ofctl::commands().map(String::from).collect(),
        };
    };
    match ofctl::argument(name, args.len()).unwrap_or_default().trim_matches(['[', ']', '.']) {
        "BRIDGE" | "SOURCE1" | "SOURCE2" => source.vsctl(&["list-br"]),
        "PORT" => match args {
            [bridge, ..] => source.vsctl(&["list-ports", bridge]),
            [] => Vec::new(),
        },
        "SETTING" | "MODE" => ofctl::settings(name),
        "VERSION" => (10..=15).map(|n| format!("OpenFlow{n}")).collect(),
        "invalid_ttl" | "watch:[MATCH" => strings(&["invalid_ttl", "watch:"]),
        _ => Vec::new(),
    }
}

/// The words that are no options.
fn plain(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect()
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}

/// Commands of one line are separated by `--`; the usage of a command tells the kind of each argument.
fn of_vsctl(before: &[String], current: &str, source: &dyn Source) -> Vec<String> {
    let begin = before.iter().rposition(|word| word == "--").map_or(0, |at| at + 1);
    let words = plain(&before[begin..]);
    let Some((name, args)) = words.split_first() else {
        return match current.starts_with('-') {
            true => [strings(vsctl::GLOBAL_OPTIONS), strings(pki::OPTIONS)].concat(),
            false => vsctl::COMMANDS.iter().map(|spec| spec.name.to_string()).collect(),
        };
    };
    let Some(spec) = vsctl::COMMANDS.iter().find(|spec| spec.name == *name) else { return Vec::new() };
    let kind = spec.usage.split(' ').nth(args.len()).unwrap_or_default();
    match kind.trim_matches(['[', ']', '.']) {
        "BRIDGE" => source.vsctl(&["list-br"]),
        "PORT" if *name == "add-port" => Vec::new(),
        "PORT" => match args {
            [bridge] => source.vsctl(&["list-ports", bridge]),
            _ => source.vsctl(&["--bare", "--columns=name", "list", "Port"]),
        },
        "IFACE" => source.vsctl(&["--bare", "--columns=name", "list", "Interface"]),
        "TABLE" => strings(TABLES),
        "RECORD" => match args {
            [table, ..] if NAMED.iter().any(|known| known.eq_ignore_ascii_case(table)) => {
                source.vsctl(&["--bare", "--columns=name", "list", table])
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Tables of the schema.
const TABLES: &[&str] = &[
    "AutoAttach",
    "Bridge",
    "CT_Timeout_Policy",
    "CT_Zone",
    "Controller",
    "Datapath",
    "Flow_Sample_Collector_Set",
    "Flow_Table",
    "IPFIX",
    "Interface",
    "Manager",
    "Mirror",
    "NetFlow",
    "Open_vSwitch",
    "Port",
    "QoS",
    "Queue",
    "SSL",
    "sFlow",
];
/// Tables whose records have names.
const NAMED: &[&str] = &["Bridge", "Port", "Interface", "Mirror", "Flow_Table"];

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl Source for Fixed {
        fn vsctl(&self, words: &[&str]) -> Vec<String> {
            match words {
                ["list-br"] => vec!["br0".to_string(), "br-int".to_string()],
                ["list-ports", "br0"] => vec!["p1".to_string(), "p2".to_string()],
                [.., "list", "Interface"] => vec!["if1".to_string()],
                _ => Vec::new(),
            }
        }

        fn daemon(&self) -> Vec<String> {
            ["dpctl/show", "dpctl/dump-flows", "fdb/show"].map(String::from).to_vec()
        }
    }

    #[test]
    fn words_are_completed_by_position() {
        for (line, expected) in [
            ("st", "status"),
            ("completion ", "bash fish zsh"),
            ("completion z", "zsh"),
            ("ctl re", "record-hostname-if-not-set reload restart"),
            ("ctl start --no-mo", "--no-monitor"),
            ("vsctl add-p", "add-port"),
            ("vsctl del-br ", "br-int br0"),
            ("vsctl -- del-port br0 p", "p1 p2"),
            ("vsctl add-port br0 ", ""),
            ("vsctl add-br x -- set Br", "Bridge"),
            ("vsctl set Interface ", "if1"),
            ("vsctl set Queue ", ""),
            ("vsctl --no-h", "--no-headings"),
            ("vsctl bogus ", ""),
            ("ofctl dump-fl", "dump-flows"),
            ("ofctl -O OpenFlow13 dump-flows br", ""),
            ("ofctl dump-flows br", "br-int br0"),
            ("ofctl --js", "--json"),
            ("ofctl diff-flows br0 br", "br-int br0"),
            ("ofctl mod-port br0 ", "p1 p2"),
            ("ofctl mod-port br0 p1 no-f", "no-flood no-forward"),
            ("ofctl mod-table br0 3 ev", "evict"),
            ("ofctl set-frags br0 nx", "nx-match"),
            ("ofctl queue-stats br0 p", "p1 p2"),
            ("ofctl add-meter br0 ", ""),
            ("ofctl dump-me", "dump-meter dump-meters"),
            ("vsctl add-bond-iface ", ""),
            ("vsctl list-zone-", "list-zone-limits list-zone-tp"),
            ("appctl fdb/show br", "br-int br0"),
            ("appctl dpctl/s", "dpctl/show"),
            ("dpctl ", "dump-flows show"),
            ("status --js", "--json"),
            ("save --out", "--output"),
            ("save br0 ", "br-int br0"),
            ("restore ", ""),
            ("restore saved br0 br-", "br-int"),
            ("bogus ", ""),
        ] {
            let words: Vec<String> = line.split(' ').map(String::from).collect();
            assert_eq!(candidates(&words, &Fixed).join(" "), expected, "{line}");
        }
        assert!(candidates(&[], &Fixed).contains(&"completion".to_string()));
    }

    #[test]
    fn scripts_ask_for_words() {
        for shell in Shell::value_variants() {
            assert!(script(*shell).contains("sluice complete-words -- "));
        }
    }
}
