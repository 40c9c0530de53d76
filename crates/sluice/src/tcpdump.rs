//! `sluice tcpdump`: the packets of a port, by tcpdump(8) on a temporary port that a mirror sends copies to.
//!
//! The program becomes tcpdump. A guard, a second process of this program, holds the other end of a pipe that tcpdump
//! keeps as its standard input: when tcpdump ends in any way, the guard takes port and mirror out of the database. The
//! next capture removes those of a guard that was killed as well.

mod dropped;
pub(crate) mod pcapng;

use std::ffi::OsString;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::remote::complain;
use crate::{ofctl, vsctl};

const PROGRAM: &str = "sluice tcpdump";
/// Key of a capture's port, with the process as its value.
const KEY: &str = "sluice-tcpdump";
/// Maximum time until the device of the port is there.
const DEVICE_LIMIT: Duration = Duration::from_secs(5);

/// Options of tcpdump: headers of Ethernet, no names, packets from the switch, lines and packets as they come.
const OPTIONS: [&str; 8] = ["-n", "-e", "-U", "-l", "-Q", "in", "-Z", "root"];

/// Packets to show, by their direction at the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Direction {
    /// Packets that the switch receives
    In,
    /// Packets that it sends
    Out,
    /// Both
    Both,
}

/// Arguments of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Port of a bridge; of dropped packets also `any`, the default
    #[arg(required_unless_present = "dropped")]
    port: Option<String>,
    /// Only packets with these fields, as `ovs-ofctl` writes matches, without an input port
    expr: Option<String>,
    /// Write packets into this file, in the format of pcap; dropped ones in that of pcapng
    #[arg(short = 'w', value_name = "FILE")]
    write: Option<PathBuf>,
    /// End after that many packets
    #[arg(short = 'c', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Take that many bytes of each packet
    #[arg(short = 's', value_name = "BYTES", value_parser = clap::value_parser!(u16).range(14..))]
    snaplen: Option<u16>,
    /// Packets that the switch receives from the port, sends to it, or both
    #[arg(long, value_enum, default_value = "both")]
    direction: Direction,
    /// Packets that the switch drops, with the reason before each line, or in the comment of each packet of a file
    #[arg(long)]
    dropped: bool,
    /// Wait for the end of a capture, then remove it
    #[arg(long, hide = true)]
    guard: bool,
}

/// Runs it; returns the exit code.
pub(crate) fn main(options: &Options) -> u8 {
    let done = match &options.port {
        _ if options.dropped => dropped::run(options),
        Some(port) if options.guard => guard(port),
        Some(port) => capture(options, port),
        None => Err(anyhow!("name a port")),
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            complain(PROGRAM, &format!("{error:#}"));
            1
        }
    }
}

/// Runs words of `ovs-vsctl`.
fn database(words: &[&str]) -> Result<String> {
    let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
    Ok(vsctl::answer(PROGRAM, &words)?.trim().to_string())
}

/// Starts a capture; returns only with an error.
fn capture(options: &Options, port: &str) -> Result<()> {
    let program = find_program("tcpdump").ok_or_else(|| anyhow!("tcpdump is not installed: install it"))?;
    remove_left_over();
    let uuid = database(&["get", "Port", port, "_uuid"])?;
    let bridge = database(&["--bare", "--columns=name", "find", "Bridge", &format!("ports{{>=}}{uuid}")])?;
    if bridge.is_empty() {
        bail!("port {port} is in no bridge");
    }
    let name = format!("slcap{}", std::process::id());
    // It is there before anything that it removes.
    let held = start_guard(&name)?;
    database(&[
        "add-port",
        &bridge,
        &name,
        "--",
        "set",
        "Interface",
        &name,
        "type=internal",
        "--",
        "set",
        "Port",
        &name,
        &format!("external_ids:{KEY}={}", std::process::id()),
    ])?;
    add_mirror(options, &bridge, &uuid, &name)?;
    wait_for_device(&name)?;
    ofctl::answer(&["mod-port", &bridge, &name, "up"].map(str::to_string))
        .with_context(|| format!("cannot set {name} up"))?;
    let error = Command::new(program).args(arguments(options, &name)).stdin(held).exec();
    Err(error).context("cannot run tcpdump")
}

fn add_mirror(options: &Options, bridge: &str, port: &str, name: &str) -> Result<()> {
    let output = database(&["get", "Port", name, "_uuid"])?;
    let mut words = vec!["--id=@m".to_string(), "create".into(), "Mirror".into(), format!("name={name}")];
    words.push(format!("output_port={output}"));
    let (received, sent) = (options.direction != Direction::Out, options.direction != Direction::In);
    words.extend(received.then(|| format!("select_src_port={port}")));
    words.extend(sent.then(|| format!("select_dst_port={port}")));
    words.extend(options.snaplen.map(|bytes| format!("snaplen={bytes}")));
    words.extend(options.expr.as_ref().map(|expr| format!("filter={expr:?}")));
    words.extend(["--", "add", "Bridge", bridge, "mirrors", "@m"].map(str::to_string));
    database(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
    let notice = database(&["--if-exists", "get", "Bridge", bridge, "status:notice"]).unwrap_or_default();
    let prefix = format!("mirror {name}: ");
    match notice.trim_matches('"').split("; ").find_map(|text| text.strip_prefix(&prefix)) {
        Some(why) => bail!("{why}"),
        None => Ok(()),
    }
}

/// The arguments of tcpdump.
fn arguments(options: &Options, device: &str) -> Vec<OsString> {
    // Packets that the system itself sends through the port are left out. The program keeps its user: another one may
    // not write into the folder of the file.
    let mut words: Vec<OsString> = OPTIONS.iter().copied().chain(["-i", device]).map(Into::into).collect();
    if let Some(file) = &options.write {
        words.extend(["-w".into(), file.into()]);
    }
    for (option, value) in [("-c", options.count), ("-s", options.snaplen.map(u64::from))] {
        words.extend(value.into_iter().flat_map(|n| [option.into(), n.to_string().into()]));
    }
    words
}

/// Starts the guard of a capture; it acts when the result is closed everywhere.
fn start_guard(name: &str) -> Result<OwnedFd> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut guard = Command::new(program)
        .args(["tcpdump", "--guard", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A signal of the terminal is for the capture.
        .process_group(0)
        .spawn()
        .context("cannot start the guard of the capture")?;
    guard.stdin.take().map(OwnedFd::from).ok_or_else(|| anyhow!("the guard of the capture has no pipe"))
}

/// Waits for the end of a capture, then removes its port and mirror.
fn guard(name: &str) -> Result<()> {
    let mut all = Vec::new();
    std::io::stdin().read_to_end(&mut all)?;
    remove(name)
}

/// Removes port and mirror of a capture.
fn remove(name: &str) -> Result<()> {
    let mirror = database(&["--bare", "--columns=_uuid", "find", "Mirror", &format!("name={name}")])?;
    let holding = |uuid: &str| {
        database(&["--bare", "--columns=name", "find", "Bridge", &format!("mirrors{{>=}}{uuid}")])
    };
    for uuid in mirror.split_whitespace() {
        let bridge = holding(uuid)?;
        if !bridge.is_empty() {
            database(&["remove", "Bridge", &bridge, "mirrors", uuid])?;
        }
    }
    database(&["--if-exists", "del-port", name]).map(drop)
}

/// Removes captures whose process is gone.
fn remove_left_over() {
    let list = ["--bare", "--columns=name", "find", "Port", &format!("external_ids:{KEY}!=")];
    // Without them there is nothing to do, and an unreachable database is told by the next command.
    let Ok(names) = database(&list) else { return };
    for name in names.split_whitespace() {
        let process = name.strip_prefix("slcap").unwrap_or_default();
        if !process.is_empty() && !Path::new("/proc").join(process).exists() {
            let _ = remove(name);
        }
    }
}

/// Waits until the system has a device.
fn wait_for_device(name: &str) -> Result<()> {
    let end = Instant::now() + DEVICE_LIMIT;
    while !Path::new("/sys/class/net").join(name).exists() {
        if Instant::now() > end {
            bail!("port {name} has no device, as its bridge has only dummies: tcpdump cannot read it");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The path of a program, in the folders of `PATH` and those of administrators.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/usr/bin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn options_become_those_of_tcpdump() {
        let usual = "-n -e -U -l -Q in -Z root -i slcap7";
        for (line, expected) in [
            ("p1", usual.to_string()),
            ("p1 tcp -c 5 -s 60", format!("{usual} -c 5 -s 60")),
            ("p1 -w /tmp/x", format!("{usual} -w /tmp/x")),
        ] {
            let line = Line::parse_from(["tcpdump"].into_iter().chain(line.split(' ')));
            let words = arguments(&line.options, "slcap7").join(&OsString::from(" "));
            assert_eq!(words.to_string_lossy(), expected);
        }
        assert!(Line::try_parse_from(["tcpdump", "--dropped"]).is_ok());
        for wrong in ["-c 5", "p1 -s 13", "p1 -c 0", "p1 --direction up", "p1 tcp udp"] {
            let line = Line::try_parse_from(["tcpdump"].into_iter().chain(wrong.split(' ')));
            assert!(line.is_err(), "{wrong}");
        }
    }
}
