//! The commands of docs/guide/ and of the README: each page runs as its reader would, in a root file system, process and
//! network namespace of its own, with the programs under test in `/usr/local`.
//!
//! A block ```` ```sh ```` is a script that must succeed. In a block ```` ```console ```` lines after `$ ` are commands,
//! which must succeed, and the other lines their whole output: `…` is any text of a line, a line of `…` any lines.
//! `make` only prints what it would do.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use testkit::{Netns, TempDir, require_netns, require_programs};

use crate::cli::program;
use crate::helpers::{SLUICED, require_userspace};

/// Root of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Time limit of a page.
const PAGE_LIMIT: Duration = Duration::from_secs(120);

/// Enters a root file system: the machine's, with changes kept in memory. Arguments: a folder, the two programs, the
/// repository, the script of the page.
const ENTER: &str = r#"
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
root=$1/root
mount -t proc proc "$root/proc"
for system in sys dev; do mount --rbind "/$system" "$root/$system"; done
for empty in tmp run var/log/openvswitch var/lib/openvswitch; do
    mkdir -p "$root/$empty"
    mount -t tmpfs none "$root/$empty"
done
touch "$root/usr/local/sbin/sluiced" "$root/usr/local/bin/sluice"
mount --bind "$2" "$root/usr/local/sbin/sluiced"
mount --bind "$3" "$root/usr/local/bin/sluice"
mkdir -p "$root/usr/src/sluice"
mount --bind "$4" "$root/usr/src/sluice"
printf '#!/bin/sh\nexec /usr/bin/make --dry-run "$@"\n' >"$root/usr/local/bin/make"
chmod 755 "$root/usr/local/bin/make"
printf '%s' "$5" >"$root/tmp/page"
path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
exec chroot "$root" env -i HOME=/root PATH=$path LC_ALL=C.UTF-8 sh -c 'cd /usr/src/sluice && exec bash /tmp/page'
"#;

/// The bridge that mirrors.md, monitoring.md, multicast.md, operate.md, qos.md, telemetry.md and troubleshoot.md begin with, as
/// install.md makes it.
const BRIDGE: &str = "
sluiced --pidfile --log-file --detach
for n in 1 2; do
    ip netns add host$n
    ip link add port$n type veth peer name eth0 netns host$n
    ip -n host$n addr add 192.0.2.$n/24 dev eth0
    ip -n host$n link set eth0 up
    ip link set port$n up
done
sluice vsctl add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 port1 -- add-port br0 port2
";

/// The stock switch with a bridge, and the devices that examples name.
const STOCK: &str = "
/usr/share/openvswitch/scripts/ovs-ctl start --system-id=random
for device in eth1 veth5 veth7; do
    ip link add $device type veth peer name far-$device
    ip link set $device up
done
ovs-vsctl add-br br-lan -- set bridge br-lan datapath_type=netdev -- add-port br-lan eth1
ovs-ofctl add-flow br-lan priority=50,udp,actions=drop
";

/// A running switch without bridges, and two cables whose other ends have nobody.
const CABLES: &str = "
sluiced --pidfile --log-file --detach
for n in 1 2; do
    ip link add eth$n type veth peer name far$n
    ip link set eth$n up
    ip link set far$n up
done
";

/// Pages, with the commands before their first one.
const PAGES: [(&str, &str); 14] = [
    ("README.md", STOCK),
    ("docs/guide/bonds.md", ""),
    ("docs/guide/install.md", ""),
    ("docs/guide/link-monitoring.md", BRIDGE),
    ("docs/guide/migrate.md", STOCK),
    ("docs/guide/mirrors.md", BRIDGE),
    ("docs/guide/monitoring.md", BRIDGE),
    ("docs/guide/multicast.md", BRIDGE),
    ("docs/guide/operate.md", BRIDGE),
    ("docs/guide/qos.md", BRIDGE),
    ("docs/guide/telemetry.md", BRIDGE),
    ("docs/guide/troubleshoot.md", BRIDGE),
    ("docs/lacp.md", CABLES),
    ("docs/spanning-tree.md", CABLES),
];

/// A command of a page.
#[derive(Debug, PartialEq, Eq)]
struct Example {
    /// Line of the page, from 1.
    line: usize,
    /// The command, or the script of a block `sh`.
    command: String,
    /// Expected output; `None` is any.
    output: Option<Vec<String>>,
}

/// The commands of a page, in order.
fn examples(page: &str) -> Vec<Example> {
    let mut all: Vec<Example> = Vec::new();
    let mut block: Option<(&str, usize)> = None;
    for (number, line) in (1..).zip(page.lines()) {
        let indent = line.len() - line.trim_start().len();
        if let Some(language) = line.trim_start().strip_prefix("```") {
            let opens = block.is_none();
            block = opens.then_some((language, indent));
            if opens && language == "sh" {
                all.push(Example { line: number, command: String::new(), output: None });
            }
            continue;
        }
        let Some((language, margin)) = block else { continue };
        let text = line.get(margin.min(indent)..).unwrap_or_default();
        match (language, text.strip_prefix("$ ")) {
            ("sh", _) => {
                let script = all.last_mut().unwrap();
                script.command += text;
                script.command.push('\n');
            }
            ("console", Some(command)) => {
                all.push(Example { line: number, command: command.to_string(), output: Some(Vec::new()) });
            }
            ("console", None) => {
                let last = all.last_mut().unwrap();
                last.output.as_mut().unwrap().push(text.to_string());
            }
            _ => {}
        }
    }
    all
}

/// Whether items fit a pattern, in which some parts stand for any number of items.
fn fits<P, I>(pattern: &[P], items: &[I], is_any: impl Fn(&P) -> bool, eq: impl Fn(&P, &I) -> bool) -> bool {
    let (mut at, mut item) = (0, 0);
    let mut retry = None;
    while item < items.len() {
        if pattern.get(at).is_some_and(&is_any) {
            retry = Some((at, item));
            at += 1;
        } else if pattern.get(at).is_some_and(|p| eq(p, &items[item])) {
            (at, item) = (at + 1, item + 1);
        } else if let Some((any, from)) = retry {
            retry = Some((any, from + 1));
            (at, item) = (any + 1, from + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(is_any)
}

/// Whether a line fits an expected one.
fn fits_line(expected: &str, line: &str) -> bool {
    let [expected, line] = [expected, line].map(|text| text.trim_end().chars().collect::<Vec<_>>());
    fits(&expected, &line, |c| *c == '…', |a, b| a == b)
}

/// Whether output fits the expected lines; empty lines at its ends do not count.
fn fits_output(expected: &[String], output: &str) -> bool {
    let lines: Vec<&str> = output.trim_matches('\n').lines().collect();
    fits(expected, &lines, |line| line == "…", |expected, line| fits_line(expected, line))
}

/// A script that runs each example, with a mark and its status behind its output.
fn script(before: &str, examples: &[Example]) -> String {
    let mut script = format!("exec 2>&1 </dev/null\n{before}\nprintf '\\036'\n");
    for Example { command, output, .. } in examples {
        let command = if output.is_none() { format!("(set -e\n{command})") } else { command.clone() };
        let _ = writeln!(script, "{command}\nprintf '\\037%d\\036' $?");
    }
    script
}

/// Runs a page and compares every output.
fn run(path: &str, before: &str) {
    let page = std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap();
    let examples = examples(&page);
    let (netns, folder) = (Netns::new("guide").unwrap(), TempDir::new("guide").unwrap());
    let shell = ["--mount", "--pid", "--fork", "--kill-child", "bash", "-ec", ENTER, "bash"];
    let page = netns.cmd("unshare").args(shell).arg(folder.path()).args([SLUICED, &program(), ROOT]);
    let out = page.arg(script(before, &examples)).limit(PAGE_LIMIT).output().unwrap();
    let mut parts = out.stdout.split('\u{1e}');
    let first = parts.next().unwrap_or_default();
    let mut faults = String::new();
    for (example, part) in examples.iter().zip(parts.chain(std::iter::repeat(""))) {
        let Example { line, command, output } = example;
        let (text, status) = part.rsplit_once('\u{1f}').unwrap_or((part, "not run"));
        if status != "0" || output.as_ref().is_some_and(|lines| !fits_output(lines, text)) {
            let expected = output.as_ref().map(|lines| lines.join("\n")).unwrap_or_default();
            let _ = write!(
                faults,
                "{path}:{line}: $ {command}\n--- status {status}, output\n{text}\n--- expected\n{expected}\n"
            );
        }
    }
    assert!(faults.is_empty(), "{faults}\n--- before the page\n{first}\n{}", out.stderr);
}

/// Runs a page of the list, if the machine can.
fn check(path: &str) {
    let (_, before) = PAGES.iter().find(|(page, _)| *page == path).unwrap();
    require_netns!();
    require_userspace!("the guide's bridges are of that type");
    require_programs!(
        &program(),
        "ovs-vsctl",
        "ovs-ofctl",
        "ovs-vswitchd",
        "ovsdb-client",
        "unshare",
        "make"
    );
    let systems = std::fs::read_to_string("/proc/filesystems").unwrap();
    if !systems.contains("\toverlay") {
        testkit::skip(path, "the kernel has no overlay file system");
        return;
    }
    run(path, before);
}

#[test]
fn the_readme() {
    check("README.md");
}

#[test]
fn install() {
    check("docs/guide/install.md");
}

#[test]
fn link_monitoring() {
    check("docs/guide/link-monitoring.md");
}

#[test]
fn lacp() {
    check("docs/lacp.md");
}

#[test]
fn spanning_tree() {
    check("docs/spanning-tree.md");
}

#[test]
fn migrate() {
    check("docs/guide/migrate.md");
}

#[test]
fn mirrors() {
    require_programs!("tcpdump");
    check("docs/guide/mirrors.md");
}

#[test]
fn monitoring() {
    require_programs!("curl");
    check("docs/guide/monitoring.md");
}

#[test]
fn telemetry() {
    check("docs/guide/telemetry.md");
}

#[test]
fn multicast() {
    check("docs/guide/multicast.md");
}

#[test]
fn operate() {
    check("docs/guide/operate.md");
}

#[test]
fn qos() {
    check("docs/guide/qos.md");
}

#[test]
fn troubleshoot() {
    check("docs/guide/troubleshoot.md");
}

#[test]
fn every_page_is_listed_and_has_commands() {
    let folder = std::fs::read_dir(Path::new(ROOT).join("docs/guide")).unwrap();
    for entry in folder {
        let name = format!("docs/guide/{}", entry.unwrap().file_name().to_string_lossy());
        assert!(PAGES.iter().any(|(page, _)| *page == name), "{name} is not in the list");
    }
    for (path, _) in PAGES {
        let page = std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap();
        assert!(!examples(&page).is_empty(), "{path}");
    }
}

#[test]
fn commands_and_outputs_are_found_and_compared() {
    let page = "$ not this\n```console\n$ one\na\n…\n```\n1. x\n   ```console\n   $ two\n     b\n   ```\n```sh\nc\nd\n```\n```ini\n$ e\n```";
    let output = |lines: &[&str]| Some(lines.iter().map(ToString::to_string).collect());
    let example = |line, command: &str, output| Example { line, command: command.into(), output };
    let expected = [
        example(3, "one", output(&["a", "…"])),
        example(9, "two", output(&["  b"])),
        example(12, "c\nd\n", None),
    ];
    assert_eq!(examples(page), expected);
    for (expected, text, fit) in [
        ("", "", true),
        ("", "a", false),
        ("a", "a \n\n", true),
        ("a", "", false),
        ("a", "a\nb", false),
        ("a…", "abc", true),
        ("…c…e", "abcdce", true),
        ("…c…e", "abcdcef", false),
        ("…", "", true),
        ("…\nb", "a\na\nb", true),
        ("…\nb\n…", "a\nb", true),
        ("…\nb", "a\nb\nc", false),
        ("a\n…\nb\nc", "a\nb\nb\nc", true),
    ] {
        let lines: Vec<String> = expected.lines().map(ToString::to_string).collect();
        assert_eq!(fits_output(&lines, text), fit, "{expected:?} and {text:?}");
    }
}
