//! Options of the command line.

use flow::Protocols;
use openflow::{Version, VersionSet};

use super::background::Settings;
use super::color::When;
use crate::hint::hint;
use crate::pki;
use crate::remote::parse_timeout_s;

/// Long options.
pub(crate) const OPTIONS: &[&str] = &[
    "--protocols",
    "--flow-format",
    "--packet-in-format",
    "--strict",
    "--bundle",
    "--readd",
    "--read-only",
    "--may-create",
    "--names",
    "--no-names",
    "--stats",
    "--no-stats",
    "--pcap",
    "--raw",
    "--option",
    "--sort",
    "--rsort",
    "--more",
    "--timestamp",
    "--json",
    "--color",
    "--verbose",
    "--log-file",
    "--pidfile",
    "--overwrite-pidfile",
    "--detach",
    "--no-chdir",
    "--monitor",
    "--user",
    "--unixctl",
    "--syslog-method",
    "--syslog-target",
    "--no-self-confinement",
    "--timeout",
    "--help",
    "--version",
];

pub(super) const HELP: &str = "\
Options:
  -O, --protocols=VERSION[,...]  the versions to offer, OpenFlow10 to OpenFlow15 (default: OpenFlow10)
  -F, --flow-format=FORMAT[,...] the flow formats to use: OpenFlow10, NXM, OXM, one of a version (default: any)
  -P, --packet-in-format=FORMAT  monitor: standard, nxt_packet_in or nxt_packet_in2
  --strict                only the rule with exactly this match and priority (mod-flows, del-flows)
  --bundle                change rules and groups in one transaction (default version: OpenFlow14)
  --readd                 replace-flows: replace rules without changes, too
  --read-only             refuse commands that change something
  --may-create            mod-group: add the group if it does not exist
  --names, --no-names     print ports by name, or by number (default: names on a terminal)
  --sort[=FIELD], --rsort[=FIELD]  dump-flows: by priority or by a field, upwards or downwards
  -m, --more              monitor, snoop, ofp-print: packets also in hexadecimal; twice: whole messages
  --timestamp             monitor, snoop: with the time
  --json                  one JSON value, where the command has one (names of ports with --names)
  --color[=always|never|auto]  print rules in colours (OVS_COLORS); auto: on a terminal
  --detach                monitor, snoop: in the background, with --pidfile[=FILE], --overwrite-pidfile, --no-chdir
  --monitor               monitor, snoop: a second process starts the command anew after a crash
  --unixctl=SOCKET        monitor, snoop: take commands of ovs-appctl there (default: ovs-ofctl.PID.ctl); none: nowhere
  --user=USER[:GROUP]     run as this user
  --syslog-method=METHOD  log to libc (the local daemon), null, unix:FILE or udp:IP:PORT
  --syslog-target=IP:PORT log to this UDP port, too
  --no-self-confinement   accepted: nothing confines this program
  -v, --verbose[=SPEC]    log levels, as [MODULE][:DESTINATION][:LEVEL]; --log-file[=FILE] logs into a file
  --stats, --no-stats     dump-flows: with counters (the default), or what rules are, without them
  --pcap, --raw           compose-packet: a capture of the packet, or its bytes in digits (the default)
  -o, --option            print the options
  -t, --timeout=SECONDS   give up after so long (default: never)
  -h, --help; -V, --version
";

/// Values of `--color`.
const COLORS: [&str; 3] = ["always", "never", "auto"];

/// Order of rules: field (the priority without one) and direction, the most significant first.
pub(super) type Order = Vec<(Option<String>, bool)>;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// Offered versions, if given.
    pub(super) versions: Option<VersionSet>,
    /// Permitted flow formats, of whatever version.
    pub(super) formats: Protocols,
    pub(super) packet_in: Option<u32>,
    pub(super) strict: bool,
    pub(super) bundle: bool,
    pub(super) readd: bool,
    pub(super) read_only: bool,
    pub(super) may_create: bool,
    pub(super) names: Option<bool>,
    pub(super) json: bool,
    pub(super) counters: bool,
    /// `compose-packet` writes a capture.
    pub(super) pcap: bool,
    pub(super) order: Order,
    pub(super) more: u8,
    pub(super) timestamp: bool,
    pub(super) timeout_s: u32,
    pub(super) color: When,
    pub(super) process: Settings,
    pub(super) pki: Box<tls::Settings>,
}

impl Options {
    pub(super) fn new() -> Options {
        Options {
            versions: None,
            formats: Protocols::ANY,
            packet_in: None,
            strict: false,
            bundle: false,
            readd: false,
            read_only: false,
            may_create: false,
            names: None,
            json: false,
            counters: true,
            pcap: false,
            order: Vec::new(),
            more: 0,
            timestamp: false,
            timeout_s: 0,
            color: When::Never,
            process: Settings::default(),
            pki: Box::default(),
        }
    }

    /// Permitted flow formats of the versions to offer.
    pub(super) fn allowed(&self, bundles: bool) -> Protocols {
        let of_versions = formats_of(self.offered(bundles));
        let both = of_versions & self.formats;
        // As ovs-ofctl, a bundle replaces versions without bundles, and their formats.
        if both.is_empty() { of_versions } else { both }
    }

    /// Restricts versions and formats to each other.
    fn settle(&mut self) -> Result<(), String> {
        let versions = self.versions.unwrap_or(VersionSet::of(&[Version::V10]));
        let both = formats_of(versions) & self.formats;
        if both.is_empty() {
            let names = || (0..6).map(|n| Version(n + 1)).filter(|v| versions.contains(*v));
            let names: Vec<String> = names().map(|v| format!("OpenFlow1{}", v.0 - 1)).collect();
            return Err(format!(
                "None of the enabled OpenFlow versions ({}) supports any of the enabled flow formats ({}). (Enable others with -O or -F.)",
                names.join(","),
                self.formats
            ));
        }
        if self.versions.is_some() {
            self.versions = Some(VersionSet::of(&both.versions().map(Version).collect::<Vec<_>>()));
        }
        Ok(())
    }

    /// The versions to offer; bundles need 1.3 at least.
    pub(super) fn offered(&self, bundles: bool) -> VersionSet {
        let since_13 = VersionSet::of(&[Version::V13, Version::V14, Version::V15]);
        match self.versions {
            None if bundles => VersionSet::of(&[Version::V14]),
            None => VersionSet::of(&[Version::V10]),
            // As ovs-ofctl: versions without bundles are replaced by 1.4.
            Some(given) if bundles && given.and(since_13).is_empty() => VersionSet::of(&[Version::V14]),
            Some(given) if bundles => given.and(since_13),
            Some(given) => given,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    Help,
    Version,
    /// The list of options.
    List,
    Run(Box<Options>, Vec<String>),
}

fn parse_versions(text: &str) -> Result<VersionSet, String> {
    let mut versions = Vec::new();
    for word in text.split(',') {
        versions.push(version(word)?);
    }
    Ok(VersionSet::of(&versions))
}

/// A version by its name.
pub(super) fn version(word: &str) -> Result<Version, String> {
    Ok(match word.to_ascii_lowercase().as_str() {
        "openflow10" | "10" => Version::V10,
        "openflow11" | "11" => Version::V11,
        "openflow12" | "12" => Version::V12,
        "openflow13" | "13" => Version::V13,
        "openflow14" | "14" => Version::V14,
        "openflow15" | "15" => Version::V15,
        _ => {
            let known = ["OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"];
            let meant = hint(word, known);
            return Err(format!("Unknown OpenFlow version: \"{word}\"{meant}"));
        }
    })
}

/// The flow formats of these versions.
fn formats_of(versions: VersionSet) -> Protocols {
    let each = (1..=6).filter(|n| versions.contains(Version(*n)));
    each.fold(Protocols::NONE, |all, n| all | Protocols::of_version(n))
}

/// Names of flow formats, separated by commas.
fn parse_formats(text: &str) -> Result<Protocols, String> {
    let one = |word| {
        Protocols::by_name(word)
            .ok_or_else(|| format!("{word}: unknown flow protocol{}", hint(word, Protocols::names())))
    };
    text.split(',').try_fold(Protocols::NONE, |all, word| Ok(all | one(word)?))
}

fn parse_packet_in(text: &str) -> Result<u32, String> {
    const NAMES: [(&str, u32); 5] =
        [("standard", 0), ("openflow10", 0), ("nxt_packet_in", 1), ("nxm", 1), ("nxt_packet_in2", 2)];
    let found = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, n)| *n).ok_or_else(|| {
        let meant = hint(text, NAMES.iter().map(|(name, _)| *name));
        format!("unknown packet-in format `{text}'{meant}")
    })
}

/// A word of options: its name and attached value.
fn split(word: &str) -> (&str, Option<&str>) {
    match word.strip_prefix("--") {
        Some(long) => match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        },
        None => {
            let end = word.char_indices().nth(2).map_or(word.len(), |(at, _)| at);
            (&word[1..end], Some(&word[end..]).filter(|value| !value.is_empty()))
        }
    }
}

pub(super) fn parse(words: &[String]) -> Result<Request, String> {
    let mut options = Options::new();
    let mut args = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        if !word.starts_with('-') || word == "-" {
            args.push(word.clone());
            continue;
        }
        if word == "--" {
            args.extend(rest.cloned());
            break;
        }
        let (name, attached) = split(word);
        match name {
            "h" | "help" => return Ok(Request::Help),
            "V" | "version" => return Ok(Request::Version),
            "o" | "option" => return Ok(Request::List),
            "sort" | "rsort" => options.order.push((attached.map(str::to_string), name == "sort")),
            "color" => {
                let text = attached.unwrap_or("auto");
                options.color = When::parse(text)
                    .ok_or_else(|| format!("incorrect value `{text}' for --color{}", hint(text, COLORS)))?;
            }
            _ if options.process.take(name, attached) => {}
            _ if flag(&mut options, name) => {}
            _ => {
                let mut value = || -> Result<String, String> {
                    let next = attached.map(str::to_string).or_else(|| rest.next().cloned());
                    next.ok_or_else(|| format!("option '{word}' requires an argument"))
                };
                take(&mut options, word, name, &mut value)?;
            }
        }
    }
    if args.is_empty() {
        return Err("missing command name (use --help for help)".into());
    }
    options.settle()?;
    Ok(Request::Run(Box::new(options), args))
}

/// Takes an option without a value; returns whether it is one.
fn flag(options: &mut Options, name: &str) -> bool {
    let place = match name {
        "strict" => &mut options.strict,
        "bundle" => &mut options.bundle,
        "readd" => &mut options.readd,
        "read-only" => &mut options.read_only,
        "may-create" => &mut options.may_create,
        "json" => &mut options.json,
        "timestamp" => &mut options.timestamp,
        "names" => {
            options.names = Some(true);
            return true;
        }
        "no-names" => {
            options.names = Some(false);
            return true;
        }
        "stats" | "no-stats" => {
            options.counters = name == "stats";
            return true;
        }
        "pcap" | "raw" => {
            options.pcap = name == "pcap";
            return true;
        }
        "m" | "more" => {
            options.more = options.more.saturating_add(1);
            return true;
        }
        _ => return false,
    };
    *place = true;
    true
}

/// Takes an option with a value.
fn take(
    options: &mut Options,
    word: &str,
    name: &str,
    value: &mut dyn FnMut() -> Result<String, String>,
) -> Result<(), String> {
    match name {
        "O" | "protocols" => options.versions = Some(parse_versions(&value()?)?),
        "F" | "flow-format" => options.formats = parse_formats(&value()?)?,
        "P" | "packet-in-format" => options.packet_in = Some(parse_packet_in(&value()?)?),
        "t" | "timeout" => options.timeout_s = parse_timeout_s(&value()?)?,
        _ => {
            if let Some(place) = options.process.with_value(name) {
                *place = Some(value()?);
                return Ok(());
            }
            let short = name.chars().next().filter(|_| name.len() == 1).and_then(pki::long_name);
            let long = short.unwrap_or(name);
            if !pki::has(long) {
                let meant = hint(word, OPTIONS.iter().chain(pki::OPTIONS).copied());
                return Err(format!("unrecognized option '{word}'{meant} (use --help for help)"));
            }
            pki::take(&mut options.pki, long, &value()?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Request, String> {
        let words: Vec<String> = line.split(' ').filter(|word| !word.is_empty()).map(String::from).collect();
        parse(&words)
    }

    #[test]
    fn command_lines() {
        let Ok(Request::Run(options, args)) =
            parse_line("-O OpenFlow13 --strict del-flows br0 -t5 x -m --sort=in_port")
        else {
            panic!("refused");
        };
        assert_eq!(
            (options.versions, options.strict, options.timeout_s),
            (Some(VersionSet::of(&[Version::V13])), true, 5)
        );
        assert_eq!(options.order, [(Some("in_port".to_string()), true)]);
        assert_eq!(args, ["del-flows", "br0", "x"]);
        assert_eq!(parse_line("-h"), Ok(Request::Help));
        assert!(matches!(parse_line("add-flow br0 -"), Ok(Request::Run(..))));
        for bad in [
            "",
            "-O",
            "-O OpenFlow99 show",
            "-O OpenFlow16 show",
            "-F bogus show",
            "-F OXM show",
            "-O OpenFlow11 -F nxm,oxm show",
            "-P bogus show",
            "--bogus show",
            "-é show",
            "-t x show",
            "--protocols= show",
        ] {
            assert!(parse_line(bad).is_err(), "{bad}");
        }
        let wrong = parse_line("-P nxt_paket_in monitor br0").unwrap_err();
        assert!(wrong.contains("(did you mean 'nxt_packet_in'?)"), "{wrong}");
    }

    #[test]
    fn bundles_need_a_later_version() {
        let offered = |line: &str| match parse_line(line) {
            Ok(Request::Run(options, _)) => options.offered(options.bundle),
            _ => panic!("refused"),
        };
        for (line, expected) in [
            ("show", Version::V10),
            ("--bundle show", Version::V14),
            ("--bundle -O OpenFlow10 show", Version::V14),
            ("--bundle -O OpenFlow10,OpenFlow13 show", Version::V13),
            ("-O OpenFlow13 -F oxm show", Version::V13),
            ("-O OpenFlow10,OpenFlow13 -F nxm show", Version::V10),
            ("-F nxm show", Version::V10),
        ] {
            assert_eq!(offered(line), VersionSet::of(&[expected]), "{line}");
        }
    }
}
