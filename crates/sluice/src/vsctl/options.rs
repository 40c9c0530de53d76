//! The command line of `sluice vsctl`: global options, then commands with their own options, separated by
//! `--`.
//!
//! As in `ovs-vsctl`, options of the first command may also precede it without a `--`.

use crate::hint::hint;
use std::collections::{BTreeMap, BTreeSet};

use super::commands::{COMMANDS, CommandSpec};
use super::table::{CellFormat, Format, TableStyle};
use super::text::Style;
use crate::pki;
use crate::remote::{parse_timeout_s, run_dir};

/// One command with its options and arguments.
#[derive(Debug)]
pub(crate) struct Invocation {
    pub(crate) spec: &'static CommandSpec,
    pub(crate) args: Vec<String>,
    pub(crate) options: BTreeMap<String, String>,
}

impl Invocation {
    /// Whether an option was given.
    pub(crate) fn has(&self, option: &str) -> bool {
        self.options.contains_key(option)
    }

    /// An argument; empty if omitted.
    pub(crate) fn arg(&self, at: usize) -> &str {
        self.args.get(at).map_or("", String::as_str)
    }
}

/// Global options.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) db: String,
    pub(crate) timeout_s: u32,
    pub(crate) wait: bool,
    pub(crate) retry: bool,
    pub(crate) dry_run: bool,
    pub(crate) oneline: bool,
    pub(crate) style: TableStyle,
    pub(crate) pki: Box<tls::Settings>,
}

/// The parsed command line.
#[derive(Debug)]
pub(crate) enum Request {
    Help,
    Version,
    /// The list of commands.
    Commands,
    /// The list of options.
    Options,
    Run(Options, Vec<Invocation>),
}

/// Options with a value.
const WITH_VALUE: [&str; 8] =
    ["db", "timeout", "format", "data", "max-column-width", "log-file", "syslog-method", "syslog-target"];

impl Options {
    fn new() -> Result<Options, String> {
        let timeout_s = match std::env::var("OVS_CTL_TIMEOUT") {
            Ok(text) if !text.is_empty() => parse_timeout_s(&text)?,
            _ => 0,
        };
        Ok(Options {
            db: format!("unix:{}", run_dir().join("db.sock").display()),
            timeout_s,
            wait: true,
            retry: false,
            dry_run: false,
            oneline: false,
            style: TableStyle::default(),
            pki: Box::default(),
        })
    }

    /// Consumes a global option; `false` if it is not one.
    fn take(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "db" => self.db = value.to_string(),
            "timeout" => self.timeout_s = parse_timeout_s(value)?,
            "no-wait" => self.wait = false,
            "retry" => self.retry = true,
            "dry-run" => self.dry_run = true,
            "oneline" => self.oneline = true,
            "format" => self.style.format = parse_format(value)?,
            "data" => self.style.cells = parse_cells(value)?,
            "no-headings" | "no-heading" => self.style.headings = false,
            "pretty" => self.style.pretty = true,
            "max-column-width" => {
                self.style.max_column_width =
                    value.parse().map_err(|_| format!("--max-column-width={value}: not a number"))?;
            }
            "bare" => {
                self.style.format = Format::List;
                self.style.cells = CellFormat::Text(Style::Bare);
                self.style.headings = false;
            }
            // No log here: all messages go to standard error.
            "no-syslog" | "verbose" | "log-file" | "syslog-method" | "syslog-target" => {}
            // About clusters of servers, which there are none of.
            "leader-only" | "no-leader-only" | "shuffle-remotes" | "no-shuffle-remotes" => {}
            _ => return Ok(pki::take(&mut self.pki, name, value)),
        }
        Ok(true)
    }
}

/// Long options that are no command's own.
pub(crate) const GLOBAL_OPTIONS: &[&str] = &[
    "--db",
    "--timeout",
    "--no-wait",
    "--retry",
    "--dry-run",
    "--oneline",
    "--format",
    "--data",
    "--no-headings",
    "--pretty",
    "--max-column-width",
    "--bare",
    "--no-syslog",
    "--verbose",
    "--log-file",
    "--syslog-method",
    "--syslog-target",
    "--leader-only",
    "--no-leader-only",
    "--shuffle-remotes",
    "--no-shuffle-remotes",
    "--commands",
    "--options",
    "--help",
    "--version",
];

fn parse_format(text: &str) -> Result<Format, String> {
    match text {
        "list" => Ok(Format::List),
        "table" => Ok(Format::Table),
        "csv" => Ok(Format::Csv),
        "json" => Ok(Format::Json),
        _ => Err(format!("--format={text}: must be list, table, csv or json")),
    }
}

fn parse_cells(text: &str) -> Result<CellFormat, String> {
    match text {
        "string" => Ok(CellFormat::Text(Style::Quoted)),
        "bare" => Ok(CellFormat::Text(Style::Bare)),
        "json" => Ok(CellFormat::Json),
        _ => Err(format!("--data={text}: must be string, bare or json")),
    }
}

/// The long name and value of a short option.
fn short_option(word: &str) -> Result<(String, Option<String>), String> {
    let mut rest = word.chars().skip(1);
    let letter = rest.next();
    let value: String = rest.collect();
    let name = match letter {
        Some('t') => "timeout",
        Some('f') => "format",
        Some('d') => "data",
        Some('v') => return Ok(("verbose".into(), Some(value))),
        Some('h') => "help",
        Some('V') => "version",
        Some(letter) if let Some(name) = pki::long_name(letter) => name,
        _ => return Err(format!("unrecognized option '{word}'")),
    };
    Ok((name.to_string(), (!value.is_empty()).then_some(value)))
}

/// Reads the words.
pub(crate) fn parse(words: &[String]) -> Result<Request, String> {
    let mut options = Options::new()?;
    let mut own = BTreeMap::new();
    let mut words = words.iter();
    let mut rest: Vec<&String> = Vec::new();
    while let Some(word) = words.next() {
        if word == "--" || !word.starts_with('-') || word == "-" {
            rest = std::iter::once(word).chain(words).collect();
            break;
        }
        let (name, value) = match word.strip_prefix("--") {
            Some(long) => match long.split_once('=') {
                Some((name, value)) => (name.to_string(), Some(value.to_string())),
                None => (long.to_string(), None),
            },
            None => short_option(word)?,
        };
        match name.as_str() {
            "help" => return Ok(Request::Help),
            "version" => return Ok(Request::Version),
            "commands" => return Ok(Request::Commands),
            "options" => return Ok(Request::Options),
            _ => {}
        }
        let known_locally = COMMANDS.iter().flat_map(|c| c.options).find(|option| option.name == name);
        let is_global = WITH_VALUE.contains(&name.as_str()) || pki::has(&name);
        let takes_value = is_global || known_locally.is_some_and(|o| o.takes_value);
        let value = match value {
            None if takes_value => {
                Some(words.next().ok_or_else(|| format!("option '{word}' requires an argument"))?.clone())
            }
            Some(_) if !takes_value && name != "verbose" => {
                return Err(format!("option '--{name}' doesn't allow an argument"));
            }
            value => value,
        };
        if options.take(&name, value.as_deref().unwrap_or(""))? {
            continue;
        }
        if known_locally.is_none() {
            let of_commands = COMMANDS.iter().flat_map(|spec| spec.options).map(|option| option.name);
            let global =
                GLOBAL_OPTIONS.iter().chain(pki::OPTIONS).filter_map(|option| option.strip_prefix("--"));
            let meant = hint(&name, global.chain(of_commands));
            return Err(format!("unrecognized option '{word}'{meant}"));
        }
        if own.insert(name, value.unwrap_or_default()).is_some() {
            return Err(format!("'{word}' option specified multiple times"));
        }
    }
    let commands = parse_commands(&rest, own)?;
    Ok(Request::Run(options, commands))
}

fn parse_commands(words: &[&String], own: BTreeMap<String, String>) -> Result<Vec<Invocation>, String> {
    let mut own = Some(own);
    let mut commands = Vec::new();
    for words in words.split(|word| *word == "--") {
        // Options before the first "--" belong to the command after it.
        if words.is_empty() {
            continue;
        }
        commands.push(parse_command(words, own.take().unwrap_or_default())?);
    }
    if commands.is_empty() {
        return Err("missing command name (use --help for help)".into());
    }
    Ok(commands)
}

fn parse_command(words: &[&String], mut options: BTreeMap<String, String>) -> Result<Invocation, String> {
    let number = words.iter().take_while(|word| word.starts_with('-')).count();
    let mut without_value = BTreeSet::new();
    for word in &words[..number] {
        let (name, value) = match word.trim_start_matches('-').split_once('=') {
            Some((name, value)) => (name, value),
            None => (word.trim_start_matches('-'), ""),
        };
        if !word.contains('=') {
            without_value.insert(name);
        }
        if options.insert(name.to_string(), value.to_string()).is_some() {
            return Err(format!("'{word}' option specified multiple times"));
        }
    }
    let Some(name) = words.get(number) else {
        return Err("missing command name (use --help for help)".into());
    };
    let Some(spec) = COMMANDS.iter().find(|spec| spec.name == **name) else {
        let meant = hint(name, COMMANDS.iter().map(|spec| spec.name));
        return Err(format!("unknown command '{name}'{meant}; use --help for help"));
    };
    for (option, value) in &options {
        match spec.options.iter().find(|known| known.name == *option) {
            None => return Err(format!("'{name}' command has no '--{option}' option")),
            Some(known) if known.takes_value && without_value.contains(option.as_str()) => {
                return Err(format!("missing argument to '--{option}' option on '{name}' command"));
            }
            Some(known) if !known.takes_value && !value.is_empty() => {
                return Err(format!("'--{option}' option on '{name}' does not accept an argument"));
            }
            Some(_) => {}
        }
    }
    let args: Vec<String> = words[number + 1..].iter().map(|word| word.to_string()).collect();
    if args.len() < spec.min_args {
        return Err(format!("'{name}' command requires at least {} arguments", spec.min_args));
    }
    if args.len() > spec.max_args {
        let misplaced = args.iter().any(|arg| arg.starts_with('-'));
        let hint = " (note that options must precede command names and follow a \"--\" argument)";
        let hint = if misplaced { hint } else { "" };
        return Err(format!("'{name}' command takes at most {} arguments{hint}", spec.max_args));
    }
    Ok(Invocation { spec, args, options })
}
