//! `sluice appctl` and `sluice dpctl`: one command to a running daemon over its control socket, with the
//! syntax of `ovs-appctl(8)`.
//!
//! JSON-RPC 1.0: the method is the command, the parameters are its arguments as strings, the result is the text to print.

pub(crate) mod fuzz;

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use ovsdb::jsonrpc::{Framer, FramerLimits, RpcMessage};
use serde_json::{Value, json};

use crate::hint::hint;
use crate::remote::{
    Deadline, EXIT_TIMED_OUT, Stream, TimedOut, complain, parse_timeout_s, print, reason, run_dir,
};

/// The default daemon.
pub(crate) const DEFAULT_TARGET: &str = "ovs-vswitchd";

const HELP: &str = "\
Options:
  -t, --target=TARGET    the daemon: its name, or the path of its control socket
                         (default: ovs-vswitchd, found by $OVS_RUNDIR/ovs-vswitchd.pid)
  -T, --timeout=SECONDS  give up after so long (default: never)
  -f, --format=FORMAT    the form of the answer: text or json (default: text)
  --pretty               JSON on several lines
  -h, --help; -V, --version

`list-commands` prints the commands of a daemon.
Exit codes: 0 done, 1 the daemon cannot be reached, 2 it answered with an error.
";

/// All long options, for hints.
pub(crate) const OPTIONS: [&str; 12] = [
    "--target",
    "--timeout",
    "--format",
    "--pretty",
    "--execute",
    "--option",
    "--verbose",
    "--log-file",
    "--syslog-method",
    "--syslog-target",
    "--help",
    "--version",
];

/// Prefix of datapath commands.
const DPCTL: &str = "dpctl/";

/// The answer of a daemon.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Text for the terminal.
    Text(String),
    /// The command failed.
    Error(String),
}

/// The control socket of a target.
fn socket_of(target: &str) -> Result<PathBuf> {
    if target.starts_with('/') {
        return Ok(PathBuf::from(target));
    }
    let pidfile = run_dir().join(format!("{target}.pid"));
    let text = std::fs::read_to_string(&pidfile).map_err(|error| {
        anyhow!("cannot read pidfile \"{}\" ({})", pidfile.display(), reason(&error.into()))
    })?;
    let pid: u32 = text
        .trim()
        .parse()
        .map_err(|_| anyhow!("pidfile \"{}\" does not hold a process id", pidfile.display()))?;
    Ok(run_dir().join(format!("{target}.{pid}.ctl")))
}

/// Sends a command and waits for the answer.
pub(crate) fn call(target: &str, command: &str, args: &[String], deadline: Deadline) -> Result<Answer> {
    exchange(target, &[(command, args)], deadline).map(|answer| match answer {
        Ok(value) => Answer::Text(plain(value)),
        Err(value) => Answer::Error(plain(value)),
    })
}

/// Sends a command whose answer is JSON; an error of the daemon is its text.
pub(crate) fn call_json(
    target: &str,
    command: &str,
    args: &[String],
    deadline: Deadline,
) -> Result<std::result::Result<Value, String>> {
    let as_json = ["--format", "json"].map(String::from);
    let answer = exchange(target, &[("set-options", &as_json), (command, args)], deadline)?;
    Ok(answer.map_err(plain))
}

/// Names of the daemon's commands.
pub(crate) fn commands(deadline: Deadline) -> Result<Vec<String>> {
    match call(DEFAULT_TARGET, "list-commands", &[], deadline)? {
        Answer::Text(text) => Ok(names_of(&text)),
        Answer::Error(text) => bail!("{text}"),
    }
}

/// Names in the answer of `list-commands`.
fn names_of(text: &str) -> Vec<String> {
    text.lines().skip(1).filter_map(|line| Some(line.split_whitespace().next()?.to_string())).collect()
}

/// Maximum reply: a list of many millions of connections.
const REPLY_MAX_BYTES: usize = 4 << 30;

/// Sends commands on one connection, each after the answer to the one before; returns the last answer, or the first
/// error of the daemon.
fn exchange(
    target: &str,
    commands: &[(&str, &[String])],
    deadline: Deadline,
) -> Result<std::result::Result<Value, Value>> {
    let socket = socket_of(target)?;
    let remote = format!("unix:{}", socket.display());
    let mut stream = Stream::connect(&remote, &tls::Settings::default(), false, deadline)
        .map_err(|error| anyhow!("cannot connect to \"{}\" ({})", socket.display(), reason(&error)))?;
    let limits = FramerLimits { bytes: REPLY_MAX_BYTES, ..FramerLimits::default() };
    let mut framer = Framer::new(limits);
    let failed = || format!("{target}: transaction error");
    let mut last = Ok(Value::Null);
    for (n, (command, args)) in commands.iter().enumerate() {
        let params = args.iter().map(|arg| Value::from(arg.as_str())).collect();
        let request = RpcMessage::Request { id: json!(n), method: command.to_string(), params };
        stream.send(&request.encode(), deadline).with_context(failed)?;
        last = 'answer: loop {
            while let Some(text) = framer.next_text().with_context(failed)? {
                match RpcMessage::from_json(text).with_context(failed)? {
                    RpcMessage::Reply { result, .. } => break 'answer Ok(result),
                    RpcMessage::Error { error, .. } => break 'answer Err(error),
                    // A daemon sends no requests to its client.
                    _ => {}
                }
            }
            let bytes = stream.receive(deadline).with_context(failed)?;
            if bytes.is_empty() {
                bail!("{target}: transaction error (End of file)");
            }
            framer.feed(&bytes);
        };
        if last.is_err() {
            break;
        }
    }
    Ok(last)
}

fn plain(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => format!("{other}\n"),
    }
}

/// Form of the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Format {
    json: bool,
    pretty: bool,
}

/// The parsed command line.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Help,
    Version,
    /// The list of options.
    List,
    Call {
        target: String,
        timeout_s: u32,
        format: Format,
        command: String,
        args: Vec<String>,
    },
}

/// The value of an option: after `=`, the rest of a short option, or the next word.
fn value_of<'w>(
    word: &'w str,
    long: &str,
    short: &str,
    rest: &mut impl Iterator<Item = &'w String>,
) -> Option<Result<&'w str, String>> {
    if word == long || word == short {
        let value = rest.next().map(String::as_str);
        return Some(value.ok_or_else(|| format!("option '{word}' requires an argument")));
    }
    if let Some(value) = word.strip_prefix(long).and_then(|rest| rest.strip_prefix('=')) {
        return Some(Ok(value));
    }
    (!word.starts_with("--")).then(|| word.strip_prefix(short)).flatten().map(Ok)
}

/// Options of datapath commands before the command name, as in `ovs-dpctl`; the daemon expects them after it.
pub(crate) const DPCTL_OPTIONS: [&str; 9] =
    ["-m", "--more", "-s", "--statistics", "--names", "--no-names", "--clear", "--may-create", "--read-only"];

/// Commands of the datapath that change nothing, for `--read-only`.
const READING: [&str; 19] = [
    "cache-get-size",
    "ct-bkts",
    "ct-get-limits",
    "ct-get-maxconns",
    "ct-get-nconns",
    "ct-get-sweep-interval",
    "ct-get-tcp-seq-chk",
    "ct-stats-show",
    "dump-conntrack",
    "dump-conntrack-exp",
    "dump-dps",
    "dump-flows",
    "get-flow",
    "help",
    "ipf-get-status",
    "list-commands",
    "offload-stats-show",
    "parse-actions",
    "show",
];

/// Whether an option with its value is about a log.
fn is_of_log(word: &str) -> bool {
    word.starts_with("--verbose=")
        || word.starts_with("--log-file=")
        || word.starts_with("-v") && !word.starts_with("--")
}

fn parse(words: &[String], prefix: &str) -> Result<Request, String> {
    let is_dpctl = prefix == DPCTL;
    let mut options = Vec::new();
    let (mut target, mut timeout_s) = (DEFAULT_TARGET.to_string(), 0);
    let mut format = Format::default();
    let mut read_only = false;
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        if !word.starts_with('-') || word == "-" || word == "--" {
            let command = if word == "--" { rest.next() } else { Some(word) };
            let Some(command) = command else { break };
            if read_only && !READING.contains(&command.as_str()) {
                return Err(format!("'{command}' command changes the datapath, and --read-only forbids it"));
            }
            let args = options.into_iter().chain(rest.cloned()).collect();
            return Ok(Request::Call {
                target,
                timeout_s,
                format,
                command: format!("{prefix}{command}"),
                args,
            });
        }
        match word.as_str() {
            "-h" | "--help" => return Ok(Request::Help),
            "-V" | "--version" => return Ok(Request::Version),
            "-o" | "--option" => return Ok(Request::List),
            "--pretty" => {
                format.pretty = true;
                continue;
            }
            // Executing is all that it does. It has no log: messages go to standard error.
            "-e" | "--execute" | "-v" | "--verbose" | "--log-file" => continue,
            "--read-only" if is_dpctl => {
                read_only = true;
                continue;
            }
            option if is_dpctl && DPCTL_OPTIONS.contains(&option) => {
                options.push(word.clone());
                continue;
            }
            _ => {}
        }
        if let Some(value) = value_of(word, "--target", "-t", &mut rest) {
            target = value?.to_string();
        } else if let Some(value) = value_of(word, "--timeout", "-T", &mut rest) {
            timeout_s = parse_timeout_s(value?)?;
        } else if let Some(value) = value_of(word, "--format", "-f", &mut rest) {
            format.json = match value? {
                "text" => false,
                "json" => true,
                other => {
                    return Err(format!(
                        "--format={other}: must be text or json{}",
                        hint(other, ["text", "json"])
                    ));
                }
            };
        } else if let Some(value) = value_of(word, "--syslog-method", "--syslog-method", &mut rest)
            .or_else(|| value_of(word, "--syslog-target", "--syslog-target", &mut rest))
        {
            value?;
        } else if !is_of_log(word) {
            let meant = hint(word, OPTIONS.iter().chain(&DPCTL_OPTIONS).copied());
            return Err(format!("unrecognized option '{word}'{meant} (use --help for help)"));
        }
    }
    Err("at least one non-option argument is required (use --help for help)".into())
}

/// Text of `--help`.
pub(crate) fn help(program: &str) -> String {
    format!("usage: {program} [OPTION]... COMMAND [ARG]...\n\n{HELP}")
}

fn run(program: &str, words: &[String], prefix: &str) -> u8 {
    let request = match parse(words, prefix) {
        Ok(request) => request,
        Err(text) => {
            complain(program, &text);
            return 1;
        }
    };
    let (target, timeout_s, format, command, args) = match request {
        Request::Help => {
            print(&help(program));
            return 0;
        }
        Request::Version => {
            print(&format!("{program} (Sluice) {}\n", env!("CARGO_PKG_VERSION")));
            return 0;
        }
        Request::List => {
            let own = if prefix == DPCTL { DPCTL_OPTIONS.as_slice() } else { &[] };
            let long = OPTIONS.iter().chain(own).filter(|option| option.starts_with("--"));
            print(&long.map(|option| format!("{option}\n")).collect::<String>());
            return 0;
        }
        Request::Call { target, timeout_s, format, command, args } => {
            (target, timeout_s, format, command, args)
        }
    };
    if command == "dpctl/help" {
        print(&help(program));
        return 0;
    }
    let deadline = Deadline::after_s(timeout_s);
    let as_json = ["--format", "json"].map(String::from);
    let mut requests: Vec<(&str, &[String])> = vec![(&command, &args)];
    if format.json {
        requests.insert(0, ("set-options", &as_json));
    }
    match exchange(&target, &requests, deadline) {
        Ok(Ok(value)) => {
            print(&shown(value, format));
            0
        }
        Ok(Err(value)) => {
            let text = plain(value);
            eprint!("{text}");
            let unknown = text.contains("is not a valid command");
            let names = || match call(&target, "list-commands", &[], deadline) {
                Ok(Answer::Text(text)) => names_of(&text),
                Ok(Answer::Error(_)) | Err(_) => Vec::new(),
            };
            let names = if unknown { names() } else { Vec::new() };
            let meant = hint(&command, names.iter().map(String::as_str));
            complain(program, &format!("{target}: server returned an error{meant}"));
            2
        }
        Err(error) => {
            complain(program, &format!("{error:#}"));
            if error.chain().any(|cause| cause.is::<TimedOut>()) { EXIT_TIMED_OUT } else { 1 }
        }
    }
}

/// An answer for the terminal.
fn shown(value: Value, format: Format) -> String {
    match (format.json, format.pretty) {
        (false, _) => plain(value),
        (true, false) => format!("{value}\n"),
        (true, true) => format!("{value:#}\n"),
    }
}

/// `sluice appctl`; returns the exit code.
pub(crate) fn main(program: &str, words: &[String]) -> u8 {
    run(program, words, "")
}

/// `sluice dpctl`; returns the exit code.
pub(crate) fn dpctl_main(program: &str, words: &[String]) -> u8 {
    run(program, words, DPCTL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str, prefix: &str) -> Result<Request, String> {
        let words: Vec<String> = line.split(' ').filter(|word| !word.is_empty()).map(String::from).collect();
        parse(&words, prefix)
    }

    #[test]
    fn command_lines() {
        let call = |target: &str, timeout_s, command: &str, args: &[&str]| {
            let args = args.iter().map(|arg| arg.to_string()).collect();
            let format = Format::default();
            Ok(Request::Call { target: target.into(), timeout_s, format, command: command.into(), args })
        };
        assert_eq!(parse_line("version", ""), call(DEFAULT_TARGET, 0, "version", &[]));
        assert_eq!(parse_line("-t /x -T5 dump -m x", ""), call("/x", 5, "dump", &["-m", "x"]));
        assert_eq!(parse_line("--target=a --timeout 7 show", "dpctl/"), call("a", 7, "dpctl/show", &[]));
        assert_eq!(parse_line("-ta -- show", ""), call("a", 0, "show", &[]));
        let dump = call("a", 0, "dpctl/dump-conntrack", &["-s", "--more", "-m", "zone=7"]);
        assert_eq!(parse_line("-s -ta --more dump-conntrack -m zone=7", DPCTL), dump);
        assert!(parse_line("-s dpctl/dump-conntrack", "").is_err() && parse_line("-x show", DPCTL).is_err());
        assert_eq!(parse_line("-h x", ""), Ok(Request::Help));
        let json = |pretty| Format { json: true, pretty };
        for (line, expected) in [("-f json x", json(false)), ("--format=json --pretty x", json(true))] {
            let Ok(Request::Call { format, .. }) = parse_line(line, "") else { panic!("{line}") };
            assert_eq!(format, expected);
        }
        let wrong = parse_line("--fromat=json x", "").unwrap_err();
        assert!(wrong.contains("unrecognized option '--fromat=json'"), "{wrong}");
        let wrong = parse_line("--timout 5 x", "").unwrap_err();
        assert!(wrong.contains("(did you mean '--timeout'?)"), "{wrong}");
        assert_eq!(shown(json!({ "a": [1] }), json(false)), "{\"a\":[1]}\n");
        assert_eq!(shown(json!({ "a": 1 }), json(true)), "{\n  \"a\": 1\n}\n");
        let of_log =
            "-e -v -vfoo:dbg --verbose=x --log-file --log-file=y --syslog-method=null --syslog-target a:1 x";
        assert_eq!(parse_line(of_log, ""), call(DEFAULT_TARGET, 0, "x", &[]));
        assert_eq!(parse_line("--option", ""), Ok(Request::List));
        assert_eq!(parse_line("--read-only show", DPCTL), call(DEFAULT_TARGET, 0, "dpctl/show", &[]));
        let create = call(DEFAULT_TARGET, 0, "dpctl/mod-flow", &["--may-create", "--clear", "a", "b"]);
        assert_eq!(parse_line("--may-create --clear mod-flow a b", DPCTL), create);
        let wrong = parse_line("--read-only del-flows", DPCTL).unwrap_err();
        assert!(wrong.contains("--read-only forbids it"), "{wrong}");
        assert!(parse_line("--read-only show", "").is_err(), "an option of dpctl");
        for bad in ["-f xml x", "", "--", "-t", "--bogus x", "-T 0 x", "-T x y", "--timeout= x", "-x"] {
            assert!(parse_line(bad, "").is_err(), "{bad}");
        }
    }
}
