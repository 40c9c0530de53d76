//! The daemon's life cycle: command line, background, files, signals, exit.

use std::time::{Duration, Instant};

use testkit::{Cmd, DaemonSpec, Netns, RunDir, Signal, patience, require_netns, require_programs, wait_for};

use crate::helpers::{
    LIMIT, SLUICED, appctl, on_kernel, ping_all, spec, switch, vsctl, wait_log, wait_until,
};
use crate::rest::assert_at_rest;

/// Timeout of a requested exit.
const END_LIMIT: Duration = Duration::from_secs(10);

#[test]
fn versions_and_help() {
    for option in ["-V", "--version"] {
        let out = Cmd::new(SLUICED).arg(option).run().unwrap();
        assert!(out.stdout.starts_with("ovs-vswitchd (Open vSwitch) 3.5."), "{}", out.stdout);
        assert!(out.stdout.contains("sluiced "), "{}", out.stdout);
    }
    for option in ["-h", "--help"] {
        let out = Cmd::new(SLUICED).arg(option).run().unwrap();
        for word in ["--pidfile", "--detach", "--log-file", "--unixctl", "DATABASE", "--mlockall"] {
            assert!(out.stdout.contains(word), "{word} is not in {}", out.stdout);
        }
    }
}

#[test]
fn bad_options_are_refused() {
    require_netns!();
    let netns = Netns::new("bad").unwrap();
    for (args, error) in [
        (&["--no-such-option"][..], "--no-such-option"),
        (&["unix:a", "unix:b"], "unix:b"),
        (&["nonsense"], "nonsense"),
        (&["unix:"], "a path is missing"),
        (&["tcp:not-an-address"], "not an address"),
        (&["punix:/tmp/x"], "punix:/tmp/x"),
        (&["-vnonsense"], "nonsense"),
        (&["--remote=nonsense:1"], "unknown connection method"),
        (&["--remote=ptcp:6640:192.0.2.1"], "cannot listen"),
        (&["--remote=ptcp:0", "unix:/no/such/socket"], "served by another process"),
        (&["--log-file=/no/such/folder/log"], "/no/such/folder/log"),
        (&["--pidfile=/no/such/folder/pid"], "/no/such/folder/pid"),
        (&["--unixctl=/no/such/folder/ctl"], "/no/such/folder/ctl"),
    ] {
        for detach in [false, true] {
            let dir = RunDir::new("bad").unwrap();
            let mut cmd = Cmd::new(SLUICED).netns(&netns).args(args.iter().copied()).limit(LIMIT);
            if detach {
                cmd = cmd.arg("--detach");
            }
            let out = dir.env().fold(cmd, |c, (k, v)| c.env(k, v)).output().unwrap();
            assert!(!out.status.success(), "{args:?} is taken");
            assert!(out.stderr.contains(error), "{args:?}, detach {detach}: {}", out.stderr);
            assert_eq!(out.stdout, "");
        }
    }
}

/// Runs the daemon into the background, through a shell that waits until all its output is closed.
fn detach(netns: &Netns, dir: &RunDir, args: &str) -> u32 {
    let script = format!(
        "text=$({SLUICED} --detach --pidfile --log-file {args} 2>&1) || exit 1; printf '%s' \"$text\""
    );
    let cmd = Cmd::new("sh").netns(netns).args(["-c", &script]).limit(LIMIT);
    let out = dir.env().fold(cmd, |c, (k, v)| c.env(k, v)).run().unwrap();
    assert_eq!(out.stdout, "", "something was printed");
    std::fs::read_to_string(dir.join("ovs-vswitchd.pid")).unwrap().trim().parse().unwrap()
}

fn runs(pid: u32) -> bool {
    // A zombie has ended.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| !s.contains(") Z "))
}

#[test]
fn detach_returns_when_ready() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let netns = Netns::new("detach").unwrap();
    let dir = RunDir::new("detach").unwrap();
    let tool = |name: &str, args: &[&str]| dir.tool(name, Some(&netns)).args(args).run().unwrap().stdout;
    // An empty database first.
    let pid = detach(&netns, &dir, "");
    assert!(
        runs(pid) && std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap() == std::path::Path::new("/")
    );
    tool("ovs-vsctl", &["--no-wait", "show"]);
    assert!(tool("ovs-appctl", &["version"]).contains("3.5."));
    tool("ovs-vsctl", &["add-br", "br0"]);
    tool("ovs-appctl", &["exit"]);
    // The reply comes last: nothing is left of the process when it is there.
    let left = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut left: Vec<String> = left.filter(|name| !name.ends_with(".log")).collect();
    left.sort();
    // The folder has the identity of the system, the last files the connections and rules for the next process.
    let kept = ["ovs-vswitchd.connections", "ovs-vswitchd.state"];
    assert_eq!(left, [[".conf.db.~lock~", "conf.db", "openvswitch"].as_slice(), &kept].concat());
    // With a configuration: it is applied when the command returns.
    let pid = detach(&netns, &dir, "--no-chdir");
    assert!(netns.ip("link show dev br0").is_ok(), "ready without its bridge");
    assert_ne!(std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), std::path::Path::new("/"));
    // A second daemon is refused and does not affect the first.
    let again = Cmd::new(SLUICED).netns(&netns).args(["--detach", "--pidfile"]);
    let out = dir.env().fold(again, |c, (k, v)| c.env(k, v)).output().unwrap();
    assert!(!out.status.success() && out.stderr.contains("ovs-vswitchd.pid"), "{}", out.stderr);
    assert!(tool("ovs-appctl", &["version"]).contains("3.5."));
    tool("ovs-appctl", &["exit", "--cleanup"]);
    wait_for(END_LIMIT, "its end", || !runs(pid)).unwrap();
}

#[test]
fn ends_promptly_and_leaves_only_its_devices() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ping");
    for how in ["exit", "exit --cleanup", "SIGTERM", "SIGINT"] {
        let (net, mut daemon) = switch(2);
        vsctl(&daemon, "add-port br0 tap1 -- set Interface tap1 type=tap");
        let [one, two] = &net.hosts[..] else { panic!("two hosts") };
        let flood = one.netns.spawn("ping", &["-n", "-q", "-f", &two.ipv4.to_string()]).unwrap();
        ping_all(&one.netns, two.ipv6.into(), 2);
        let dir = daemon.rundir().clone();
        let begin = Instant::now();
        match how {
            "SIGTERM" => daemon.signal(Signal::TERM).unwrap(),
            "SIGINT" => daemon.signal(Signal::INT).unwrap(),
            command => drop(appctl(&daemon, command)),
        }
        let out = daemon.wait(END_LIMIT).unwrap();
        assert!(out.status.success(), "{how}: {:?}", out.status);
        assert!(begin.elapsed() < patience(END_LIMIT), "{how} took {:?}", begin.elapsed());
        drop(flood);
        let there = ["br0", "tap1"].map(|dev| net.switch.ip(&format!("link show dev {dev}")).is_ok());
        // For the next process, unless the exit includes a cleanup; the kernel datapath forwards meanwhile.
        let stays = how != "exit --cleanup";
        assert_eq!(there, [stays, stays && !on_kernel()], "{how}");
        let mut left: Vec<String> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|n| {
                n.ends_with(".pid") || n.ends_with(".ctl") || n.ends_with(".sock") || n.ends_with(".mgmt")
            })
            .collect();
        left.sort();
        assert_eq!(left, Vec::<String>::new(), "{how}");
        assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("", ""));
        assert!(!dir.log().contains("|ERR|") && !dir.log().contains("|WARN|"), "{how}: {}", dir.log());
    }
}

#[test]
fn a_hangup_reopens_the_log() {
    require_netns!();
    require_programs!("ovs-vsctl");
    let (_net, mut daemon) = switch(0);
    let (file, moved) = (daemon.rundir().join("ovs-vswitchd.log"), daemon.rundir().join("moved"));
    std::fs::rename(&file, &moved).unwrap();
    daemon.signal(Signal::HUP).unwrap();
    wait_for(LIMIT, "a new log file", || file.exists()).unwrap();
    vsctl(&daemon, "add-br after");
    wait_log(&daemon, "bridge after");
    assert!(!std::fs::read_to_string(&moved).unwrap().contains("bridge after"));
}

/// Whether a line has the form `2026-11-20T11:27:06.283Z|00001|module|LEVEL|message`.
fn is_log_line(line: &str) -> bool {
    let parts: Vec<&str> = line.splitn(5, '|').collect();
    let [time, number, module, level, message] = parts[..] else { return false };
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape == "0000-00-00T00:00:00.000Z"
        && number.len() >= 5
        && number.parse::<u32>().is_ok()
        && !module.is_empty()
        && module.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && ["DBG", "INFO", "WARN", "ERR", "EMER"].contains(&level)
        && !message.is_empty()
}

#[test]
fn log_lines_have_the_ovs_format() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let netns = Netns::new("log").unwrap();
    let console = DaemonSpec::new(SLUICED).unwrap().netns(&netns).args(["--pidfile", "--log-file=other.log"]);
    let daemon = console.start().unwrap();
    appctl(&daemon, "vlog/set");
    appctl(&daemon, "version");
    vsctl(&daemon, "add-br br0 -- add-port br0 nope");
    let log = daemon.log();
    assert!(daemon.rundir().join("other.log").exists() && log.contains("|DBG|"));
    for line in log.lines() {
        assert!(is_log_line(line), "{line}");
    }
    let numbers: Vec<u32> = log.lines().map(|l| l.split('|').nth(1).unwrap().parse().unwrap()).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    // The same lines on the console, for a daemon in the foreground.
    wait_for(LIMIT, "the console to tell", || daemon.stderr().contains("bridge br0")).unwrap();
    assert!(daemon.stderr().lines().all(is_log_line), "{}", daemon.stderr());
    assert_eq!(daemon.stdout(), "");
}

#[test]
fn invoked_as_ovs_vswitchd_it_embeds_no_database() {
    require_netns!();
    let netns = Netns::new("name").unwrap();
    let link_dir = RunDir::new("bin").unwrap();
    let link = link_dir.join("ovs-vswitchd");
    std::os::unix::fs::symlink(SLUICED, &link).unwrap();
    let daemon =
        DaemonSpec::new(&link).unwrap().netns(&netns).args(["--pidfile", "--log-file", "-vconsole:off"]);
    let daemon = daemon.start().unwrap();
    wait_log(&daemon, "waiting");
    for name in ["conf.db", "db.sock"] {
        assert!(!daemon.rundir().join(name).exists(), "it made {name}");
    }
    let begin = Instant::now();
    daemon.stop().unwrap();
    assert!(begin.elapsed() < patience(END_LIMIT));
}

#[test]
fn a_named_control_socket_is_used() {
    require_netns!();
    require_programs!("ovs-appctl");
    let netns = Netns::new("ctl").unwrap();
    let spec = spec(&netns).args(["--unixctl=mine.ctl"]);
    let daemon = spec.start().unwrap();
    let socket = daemon.rundir().join("mine.ctl");
    wait_for(LIMIT, "the socket", || testkit::listens(&socket)).unwrap();
    let out = daemon.tool("ovs-appctl").arg("-t").arg(socket).arg("version").run().unwrap();
    assert!(out.stdout.contains("3.5."));
}

#[test]
fn an_idle_switch_rests() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let (net, daemon) = switch(3);
    let [one, two, three] = &net.hosts[..] else { panic!("three hosts") };
    vsctl(&daemon, "add-port br0 tap1 -- set Interface tap1 type=tap -- add-port br0 missing");
    ping_all(&one.netns, two.ipv4.into(), 3);
    // States that may cause a busy loop: no carrier, down, removed.
    one.netns.ip(&format!("link set dev {} down", one.dev)).unwrap();
    net.switch.ip(&format!("link set dev {} down", two.port)).unwrap();
    net.switch.ip(&format!("link del dev {}", three.port)).unwrap();
    net.switch.up("tap1").unwrap();
    wait_until(&daemon, &format!("Interface {} ofport=-1", three.port));
    assert_at_rest(&[("devices down and gone", &daemon)]);
}

/// Names of the given devices that exist in a namespace.
fn devices(netns: &Netns, names: &[&str]) -> Vec<String> {
    let exists = |name: &&&str| netns.ip(&format!("link show dev {name}")).is_ok();
    names.iter().filter(exists).map(|name| (*name).to_owned()).collect()
}

/// As with OVS 3.5: taps of `internal` and `tap` ports keep address, MAC and state over an exit and a kill, also those
/// whose port was deleted meanwhile; `del-port`, `del-br` and `exit --cleanup` remove them.
#[test]
fn taps_outlive_the_daemon() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ip");
    let netns = Netns::new("taps").unwrap();
    let mut daemon = spec(&netns).start().unwrap();
    vsctl(
        &daemon,
        "add-br br0 -- add-port br0 i0 -- set Interface i0 type=internal -- add-port br0 t0 -- set Interface t0 type=tap",
    );
    vsctl(&daemon, "add-br br1");
    netns.ip("addr add 192.0.2.1/24 dev br0").unwrap();
    netns.ip("link set dev br0 up").unwrap();
    netns.ip("link set dev i0 up").unwrap();
    let state = || ["br0", "i0", "t0"].map(|name| netns.ip(&format!("-br link show dev {name}")).unwrap());
    let mac = |lines: [String; 3]| lines.map(|line| line.split_whitespace().nth(2).unwrap().to_owned());
    let macs = mac(state());
    let dir = daemon.rundir().clone();
    for end in ["exit", "kill"] {
        if end == "exit" {
            appctl(&daemon, "exit");
        } else {
            daemon.signal(Signal::KILL).unwrap();
        }
        wait_for(LIMIT, "the end of the daemon", || daemon.status().is_some()).unwrap();
        assert_eq!(mac(state()), macs, "{end}");
        let next = spec(&netns).rundir(&dir).start().unwrap();
        drop(std::mem::replace(&mut daemon, next).crash());
        wait_until(&daemon, "Interface t0 ofport=2");
        wait_until(&daemon, "Interface br0 link_state=up");
        assert_eq!(mac(state()), macs, "after {end}");
        let addresses = netns.ip("-br addr show dev br0").unwrap();
        assert!(addresses.contains("192.0.2.1/24"), "after {end}: {addresses}");
    }
    vsctl(&daemon, "del-port t0 -- del-br br1");
    let all = ["br0", "i0", "t0", "br1"];
    wait_for(LIMIT, "the end of t0 and br1", || devices(&netns, &all) == ["br0", "i0"]).unwrap();
    appctl(&daemon, "exit --cleanup");
    wait_for(LIMIT, "the end of all taps", || devices(&netns, &all).is_empty()).unwrap();
}

#[test]
fn mlockall_locks_memory() {
    require_netns!();
    let netns = Netns::new("mlock").unwrap();
    // In kB.
    let memory = |daemon: &testkit::Daemon| -> [u64; 2] {
        let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
        ["VmLck:", "VmRSS:"].map(|name| {
            let line = status.lines().find(|l| l.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        })
    };
    let [locked, usual] = memory(&spec(&netns).start().unwrap());
    assert_eq!(locked, 0);
    let [locked, resident] = memory(&spec(&netns).args(["--mlockall"]).start().unwrap());
    // Memory reserved by the allocator is locked on use, and uses none before.
    assert!(
        locked > 1000 && resident < usual + 100_000,
        "locked {locked}, resident {resident} and {usual} without"
    );
}

#[test]
fn a_restart_after_a_crash_serves_at_once_and_cleans_up() {
    require_netns!();
    require_programs!("ovs-vsctl");
    let (net, mut daemon) = switch(3);
    for _ in 0..3 {
        let dir = daemon.rundir().clone();
        // Does not wait for the process: the kernel may still close its sockets.
        daemon.signal(Signal::KILL).unwrap();
        let next = spec(&net.switch).rundir(&dir).start().unwrap();
        let before = std::mem::replace(&mut daemon, next);
        vsctl(&daemon, "set bridge br0 other_config:crashed=true");
        drop(before.crash());
        let stale: Vec<String> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|n| n.ends_with(".ctl") || n.ends_with(".events"))
            .filter(|n| !n.contains(&format!(".{}.", daemon.pid())))
            .collect();
        assert_eq!(stale, Vec::<String>::new());
    }
}

/// The permission bits of the files of a run directory.
fn modes(dir: &RunDir, names: &[String]) -> Vec<u32> {
    use std::os::unix::fs::PermissionsExt;
    names.iter().map(|n| std::fs::metadata(dir.join(n)).unwrap().permissions().mode() & 0o7777).collect()
}

#[test]
fn files_have_the_modes_of_ovs() {
    require_netns!();
    require_programs!("ovs-vsctl");
    // As in OVS 3.1: sockets, log and database, lock, pid file.
    for (umask, expected) in [
        ("000", [0o770, 0o660, 0o600, 0o666]),
        ("022", [0o750, 0o640, 0o600, 0o644]),
        ("077", [0o700, 0o600, 0o600, 0o600]),
    ] {
        let netns = Netns::new("modes").unwrap();
        let line =
            format!("umask {umask}; exec {SLUICED} --disable-system --pidfile --log-file -vconsole:off");
        let daemon = DaemonSpec::new("sh").unwrap().netns(&netns).args(["-c", &line]).start().unwrap();
        vsctl(&daemon, "add-br br0");
        let [socket, file, lock, pid_file] = expected;
        let control = format!("ovs-vswitchd.{}.ctl", daemon.pid());
        let names =
            ["br0.mgmt", "br0.snoop", "db.sock", &control, "ovs-vswitchd.log", "conf.db", ".conf.db.~lock~"];
        let names: Vec<String> = names.into_iter().chain(["ovs-vswitchd.pid"]).map(String::from).collect();
        let expected = [socket, socket, socket, socket, file, file, lock, pid_file];
        assert_eq!(modes(daemon.rundir(), &names), expected, "umask {umask}: {names:?}");
    }
}

#[test]
fn compaction_keeps_mode_owner_and_link_and_writes_to_no_other_file() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovsdb-tool");
    let netns = Netns::new("compact").unwrap();
    let spec = spec(&netns);
    let dir = spec.run_directory().clone();
    symlink("real.db", dir.join("conf.db")).unwrap();
    let daemon = spec.start().unwrap();
    vsctl(&daemon, "--no-wait add-br br0 -- set bridge br0 other_config:kept=yes");
    let (real, victim) = (dir.join("real.db"), dir.join("victim"));
    std::fs::write(&victim, "precious").unwrap();
    symlink(&victim, dir.join("real.db.tmp")).unwrap();
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o604)).unwrap();
    chown(&real, Some(12), Some(34)).unwrap();
    let inode = std::fs::metadata(&real).unwrap().ino();
    appctl(&daemon, "ovsdb-server/compact");
    wait_for(LIMIT, "the new file", || std::fs::metadata(&real).is_ok_and(|m| m.ino() != inode)).unwrap();
    let meta = std::fs::metadata(&real).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (0o604, 12, 34));
    assert_eq!(std::fs::read_link(dir.join("conf.db")).unwrap(), std::path::Path::new("real.db"));
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    assert!(
        !dir.join("real.db.tmp").exists() && vsctl(&daemon, "get bridge br0 other_config").contains("kept")
    );
}

/// The parent process.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn a_monitor_restarts_a_crashed_daemon() {
    require_netns!();
    require_programs!("ovs-vsctl", "kill");
    let kill = |signal: &str, pid: u32| Cmd::new("kill").args([signal, &pid.to_string()]).run().unwrap();
    // The exits that count as crashes, from daemon(8) of OVS; after any other, the monitor exits with the daemon.
    for (signal, is_crash) in [("-ABRT", true), ("-ILL", true), ("-KILL", false), ("-TERM", false)] {
        let netns = Netns::new("monitor").unwrap();
        let dir = RunDir::new("monitor").unwrap();
        let first = detach(&netns, &dir, "--monitor --disable-system");
        let monitor = parent(first).unwrap();
        let title = std::fs::read_to_string(format!("/proc/{monitor}/cmdline")).unwrap();
        assert!(title.contains(&format!("monitoring pid {first} (healthy)")), "{title}");
        dir.tool("ovs-vsctl", Some(&netns)).args(["add-br", "br0"]).run().unwrap();
        kill(signal, first);
        let daemon =
            || std::fs::read_to_string(dir.join("ovs-vswitchd.pid")).ok()?.trim().parse::<u32>().ok();
        if is_crash {
            let next = || daemon().filter(|pid| *pid != first && runs(*pid));
            wait_for(LIMIT, "another daemon", || next().is_some()).unwrap();
            let next = next().unwrap();
            assert_eq!(parent(next), Some(monitor));
            dir.tool("ovs-vsctl", Some(&netns)).args(["--retry", "add-br", "br1"]).run().unwrap();
            assert!(dir.log().contains(&format!("pid {first} died, killed")), "{}", dir.log());
            let shown = std::fs::read_to_string(format!("/proc/{next}/cmdline")).unwrap();
            assert!(!shown.contains("monitoring"), "{shown}");
            if signal == "-ILL" {
                // The second crash follows soon after the restart: the next restart waits.
                kill(signal, next);
                let pauses = || dir.log().contains("waiting until 10 seconds since last restart");
                wait_for(LIMIT, "the pause between restarts", pauses).unwrap();
                assert!(!runs(next) && runs(monitor));
                kill("-TERM", monitor);
            } else {
                kill("-TERM", next);
            }
        }
        wait_for(LIMIT, "the monitor's end", || !runs(monitor)).unwrap();
        assert!(daemon().is_none_or(|pid| !runs(pid)), "{signal}");
    }
}

#[test]
fn ovs_save_keeps_flows_groups_and_mappings() {
    const SAVE: &str = "/usr/share/openvswitch/scripts/ovs-save";
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", SAVE);
    let netns = Netns::new("save").unwrap();
    let spec = spec(&netns);
    let dir = spec.run_directory().clone();
    let daemon = spec.start().unwrap();
    vsctl(
        &daemon,
        "add-br br0 -- set bridge br0 fail_mode=secure protocols=OpenFlow10,OpenFlow14,OpenFlow15 \
         -- set Open_vSwitch . other_config:restore=never",
    );
    let mapping = "{class=0xffff,type=1,len=8}->tun_metadata1";
    let group =
        "group_id=7,type=select,selection_method=dp_hash,bucket=bucket_id:4,weight:3,actions=output:1";
    let rule = "table=3,priority=7,importance=9,arp,tun_metadata1=5,actions=group:7";
    for words in [
        ["-OOpenFlow15", "add-tlv-map", "br0", mapping],
        ["-OOpenFlow15", "add-group", "br0", group],
        ["-OOpenFlow14", "add-flow", "br0", rule],
    ] {
        daemon.ovs("ovs-ofctl", &words).unwrap();
    }
    let script = daemon.tool(SAVE).args(["save-flows", "br0"]).run().unwrap().stdout;
    daemon.stop().unwrap();
    let daemon = spec.rundir(&dir).start().unwrap();
    let dump = |verb: &str| daemon.ovs("ovs-ofctl", &["-OOpenFlow15", verb, "br0"]).unwrap().stdout;
    wait_for(LIMIT, "the bridge", || testkit::listens(&dir.join("br0.mgmt"))).unwrap();
    let all = || ["dump-tlv-map", "dump-groups", "dump-flows"].map(dump).concat();
    let kept = [
        "0xffff   0x1       8  tun_metadata1",
        group,
        "n_packets=0, n_bytes=0, importance=9, ",
        "priority=7,arp,tun_metadata1=0x5 actions=group:7",
    ];
    assert!(kept.iter().all(|line| !all().contains(line)), "{}", all());
    daemon.tool("sh").args(["-c", &script]).output().unwrap();
    for line in kept {
        assert!(all().contains(line), "{line} in {}", all());
    }
}

/// `ovs-save` leaves meters out, and its bundle fails as a whole where one is missing.
#[test]
fn ovs_save_keeps_rules_with_meters() {
    const SAVE: &str = "/usr/share/openvswitch/scripts/ovs-save";
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", SAVE);
    let netns = Netns::new("meters").unwrap();
    let spec = spec(&netns);
    let dir = spec.run_directory().clone();
    let daemon = spec.start().unwrap();
    vsctl(&daemon, "add-br br0 -- set bridge br0 fail_mode=secure protocols=OpenFlow10,OpenFlow15");
    for words in [
        ["add-meter", "br0", "meter=3,pktps,burst,bands=type=drop,rate=1000,burst_size=7"],
        ["add-group", "br0", "group_id=7,type=all,bucket=bucket_id:0,actions=output:1"],
        ["add-flow", "br0", "table=3,priority=7,arp,actions=meter:3,group:7"],
        ["add-flow", "br0", "priority=8,ip,actions=drop"],
    ] {
        daemon.ovs("ovs-ofctl", &[&["-OOpenFlow15"], &words[..]].concat()).unwrap();
    }
    let script = daemon.tool(SAVE).args(["save-flows", "br0"]).run().unwrap().stdout;
    vsctl(&daemon, "set Open_vSwitch . other_config:flow-restore-wait=true");
    daemon.stop().unwrap();
    let daemon = spec.rundir(&dir).start().unwrap();
    wait_for(LIMIT, "the bridge", || testkit::listens(&dir.join("br0.mgmt"))).unwrap();
    let dump = |words: &[&str]| {
        daemon.ovs("ovs-ofctl", &[&["-OOpenFlow15"], words, &["br0"]].concat()).unwrap().stdout
    };
    let rules = || dump(&["--no-stats", "dump-flows"]);
    assert_eq!(rules(), "", "rules and groups come by the script");
    let meters = dump(&["dump-meters"]);
    assert!(meters.contains("meter=3 pktps burst bands=\ntype=drop rate=1000 burst_size=7\n"), "{meters}");
    let restored = daemon.tool("sh").args(["-c", &script]).output().unwrap();
    vsctl(&daemon, "remove Open_vSwitch . other_config flow-restore-wait");
    let kept = " table=3, priority=7,arp actions=meter:3,group:7\n";
    assert!(rules().contains(kept), "{}\n{}", rules(), restored.stderr);
    assert!(rules().contains(" priority=8,ip actions=drop\n"), "{}", rules());
}

#[test]
fn the_embedded_database_answers_as_ovsdb_server() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovsdb-client");
    let netns = Netns::new("dbctl").unwrap();
    let daemon = spec(&netns).start().unwrap();
    let dir = daemon.rundir().clone();
    let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let (own, extra) = (format!("punix:{}", path("db.sock")), format!("punix:{}", path("x.sock")));
    let managers = "db:Open_vSwitch,Open_vSwitch,manager_options\n";
    // It comes after the control socket of the switch.
    let pid_file = dir.join("ovsdb-server.pid");
    wait_for(LIMIT, "the pid file of the database server", || pid_file.exists()).unwrap();
    // Answers of ovsdb-server 3.1, except to commands that would detach the switch's database.
    for (words, expected) in [
        ("version", Ok("ovsdb-server (Open vSwitch) 3.5.4\n".to_string())),
        ("ovsdb-server/list-dbs", Ok("Open_vSwitch\n_Server\n".to_string())),
        ("ovsdb-server/list-remotes", Ok(format!("{managers}{own}\n"))),
        ("ovsdb-server/get-db-storage-status Open_vSwitch", Ok("status: ok\n".to_string())),
        ("ovsdb-server/get-db-storage-status foo", Err("Failed to find the database.")),
        ("ovsdb-server/sync-status", Ok("state: active\n".to_string())),
        (
            "ovsdb-server/perf-counters-show",
            Ok("performance counter is not supported on this platform\n".to_string()),
        ),
        ("ovsdb-server/perf-counters-clear", Ok(String::new())),
        ("coverage/read-counter bogus", Err("No such counter")),
        (&format!("ovsdb-server/add-remote {extra}"), Ok(String::new())),
        ("ovsdb-server/list-remotes", Ok(format!("{managers}{own}\n{extra}\n"))),
        ("ovsdb-server/add-remote foo:bar", Err("unknown connection method")),
        ("ovsdb-server/remove-remote nonesuch", Err("no such remote")),
        (&format!("ovsdb-server/remove-remote {own}"), Err("as long as the switch runs")),
        ("ovsdb-server/add-db other.db", Err("Open_vSwitch alone")),
        ("ovsdb-server/remove-db Open_vSwitch", Err("Open_vSwitch alone")),
        ("ovsdb-server/compact", Ok(String::new())),
        ("ovsdb-server/compact foo", Err("no database by that name")),
        ("ovsdb-server/reconnect", Ok(String::new())),
        ("ovsdb-server/nonsense", Err("is not a valid command")),
        ("exit", Err("ovs-appctl exit")),
    ] {
        let out =
            daemon.tool("ovs-appctl").args(["-t", "ovsdb-server"]).args(words.split(' ')).output().unwrap();
        match expected {
            Ok(text) => assert_eq!((out.stdout, out.stderr.as_str()), (text, ""), "{words}"),
            Err(why) => assert!(!out.status.success() && out.stderr.contains(why), "{words}: {}", out.stderr),
        }
    }
    let list =
        |name: &str| daemon.tool("ovsdb-client").args(["list-dbs", &format!("unix:{}", path(name))]).output();
    assert_eq!(list("x.sock").unwrap().stdout, "Open_vSwitch\n_Server\n");
    vsctl(&daemon, "set-manager ptcp:16640:127.0.0.1");
    assert!(list("x.sock").unwrap().status.success(), "a change of managers ended it");
    daemon
        .tool("ovs-appctl")
        .args(["-t", "ovsdb-server", "ovsdb-server/remove-remote", &extra])
        .run()
        .unwrap();
    assert!(!list("x.sock").unwrap().status.success());
    daemon.stop().unwrap();
    assert!(!pid_file.exists());
}

#[test]
fn system_statistics_are_written_when_enabled() {
    require_netns!();
    require_programs!("ovs-vsctl");
    let netns = Netns::new("machine").unwrap();
    let daemon = spec(&netns).start().unwrap();
    let get =
        |key: &str| vsctl(&daemon, &format!("--if-exists get open . statistics:{key}")).replace('"', "");
    assert_eq!(get("cpu"), "");
    vsctl(&daemon, "set open . other_config:enable-statistics=true");
    wait_until(&daemon, "open . statistics:cpu!=0");
    // The number of values in each entry, as in ovs-vswitchd 3.1.
    for (key, numbers) in [("cpu", 1), ("load_average", 3), ("memory", 5), ("process_ovs-vswitchd", 7)] {
        let value = get(key);
        let parsed: Vec<f64> = value.split(',').map(|n| n.parse().unwrap()).collect();
        assert_eq!(parsed.len(), numbers, "{key}={value}");
    }
    // Reading the pid files does not release their locks.
    let again = Cmd::new(SLUICED).netns(&netns).args(["--pidfile", "--disable-system"]);
    let out = daemon.rundir().env().fold(again, |c, (k, v)| c.env(k, v)).output().unwrap();
    assert!(out.stderr.contains("already running"), "{}", out.stderr);
    vsctl(&daemon, "remove open . other_config enable-statistics");
    wait_until(&daemon, "open . statistics={}");
}
