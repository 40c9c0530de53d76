//! The traced system calls of a burst: one sendmmsg(2) per output port, and its fallback.

use crate::helpers::{BROADCAST, Frame, LIMIT, seen, send, spec, vsctl, watch};
use std::collections::BTreeMap;
use testkit::{
    Capture, Cmd, Daemon, Running, Signal, TempDir, Topology, require_netns, require_programs,
    require_strace, wait_for,
};

/// Frames of a burst.
const FRAMES: usize = 20;

/// A system call on the socket of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Call {
    name: String,
    /// The requested number of messages, if the call has one.
    messages: Option<usize>,
    /// The result: a number, or the name of an error.
    result: String,
}

fn call(name: &str, messages: Option<usize>, result: &str) -> Call {
    Call { name: name.to_string(), messages, result: result.to_string() }
}

/// A tracer attached to all threads of a daemon.
struct Trace {
    strace: Running,
    files: TempDir,
}

impl Trace {
    /// Attaches; `inject` is the value of strace's option of that name.
    fn start(daemon: &Daemon, inject: Option<&str>) -> Trace {
        let files = TempDir::new("strace").unwrap();
        let to = files.path().join("thread");
        // Prints raw pointers, so each call is a short line; each thread has its own file.
        let mut cmd = Cmd::new("strace").args(["-ff", "-o", to.to_str().unwrap(), "-e", "verbose=none"]);
        cmd = cmd.args(["-e", "trace=sendmmsg,sendmsg,recvmmsg", "-p", &daemon.pid().to_string()]);
        if let Some(inject) = inject {
            cmd = cmd.args(["-e", &format!("inject={inject}")]);
        }
        let strace = cmd.spawn().unwrap();
        wait_for(LIMIT, "strace to attach", || strace.stderr().contains(" attached")).unwrap();
        Trace { strace, files }
    }

    /// Detaches; returns the calls on sockets of ports, by port name, in the order of each thread.
    fn stop(self, net: &Topology, daemon: &Daemon) -> BTreeMap<String, Vec<Call>> {
        self.strace.stop(Signal::INT, LIMIT).unwrap();
        let ports = ports_of_sockets(net, daemon);
        let mut calls: BTreeMap<String, Vec<Call>> = BTreeMap::new();
        for file in std::fs::read_dir(self.files.path()).unwrap().flatten() {
            let text = std::fs::read_to_string(file.path()).unwrap();
            for (fd, call) in text.lines().filter_map(read_call) {
                if let Some(port) = ports.get(&fd) {
                    calls.entry(port.clone()).or_default().push(call);
                }
            }
        }
        calls
    }
}

/// A line of strace, such as `sendmmsg(9, 0x7f00, 20, MSG_DONTWAIT) = 20`: the descriptor and the call.
fn read_call(line: &str) -> Option<(u32, Call)> {
    let (name, rest) = line.split_once('(')?;
    let (args, result) = rest.split_once(") ")?;
    let args: Vec<&str> = args.split(", ").collect();
    let messages = if name.ends_with("mmsg") { args.get(2)?.parse().ok() } else { None };
    let mut words = result.trim_start_matches(['=', ' ']).split_whitespace();
    let result = match words.next()? {
        "-1" => words.next()?,
        number => number,
    };
    Some((args.first()?.parse().ok()?, Call { name: name.into(), messages, result: result.into() }))
}

/// The daemon's packet sockets: descriptor → name of the device that it is bound to.
fn ports_of_sockets(net: &Topology, daemon: &Daemon) -> BTreeMap<u32, String> {
    let links: serde_json::Value = serde_json::from_str(&net.switch.ip("-j link").unwrap()).unwrap();
    let links = links.as_array().unwrap();
    let name_of = |index: u64| links.iter().find(|l| l["ifindex"] == index)?["ifname"].as_str();
    let table = std::fs::read_to_string(format!("/proc/{}/net/packet", daemon.pid())).unwrap();
    let by_inode: BTreeMap<&str, &str> = table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            Some((*words.last()?, name_of(words.get(4)?.parse().ok()?)?))
        })
        .collect();
    let fds = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
    fds.flatten()
        .filter_map(|fd| {
            let target = std::fs::read_link(fd.path()).ok()?;
            let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some((fd.file_name().to_str()?.parse().ok()?, (*by_inode.get(inode)?).to_string()))
        })
        .collect()
}

/// Waits until no thread of a stopped process runs.
fn wait_stopped(daemon: &Daemon) {
    let state = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
    };
    let stopped = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
        tasks.flatten().all(|task| matches!(state(task), Some('T' | 't')))
    };
    // A traced thread also stops for a moment at each call: all of them do at once only when the process is stopped.
    let mut looks = 0;
    let steady = || {
        looks = if stopped() { looks + 1 } else { 0 };
        looks == 5
    };
    wait_for(LIMIT, "the daemon to stop", steady).unwrap();
}

/// A switch with one flow and its megaflow, which forwards frames of the first host to two others.
pub(crate) fn fan_out(net: &Topology, args: &[&str]) -> Daemon {
    let daemon = spec(&net.switch).args(args.iter().copied()).start().unwrap();
    let mut line = "set Open_vSwitch . other_config:max-idle=120000 -- add-br br0 -- set Bridge br0 \
                    fail_mode=secure"
        .to_string();
    for (n, port) in net.ports().iter().enumerate() {
        line += &format!(" -- add-port br0 {port} -- set Interface {port} ofport_request={}", n + 1);
    }
    vsctl(&daemon, &line);
    let rule = "in_port=1,dl_type=0x88b5,actions=output:2,output:3";
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", rule]).unwrap();
    let captures = [1, 2].map(|n| watch(&net.hosts[n].netns, &net.hosts[n].dev));
    let first = "02:aa:00:00:00:ff";
    send(&net.hosts[0], &[Frame { to: BROADCAST, from: first, vlan: None }]);
    captures.iter().for_each(|c| c.wait_for(first, LIMIT).unwrap());
    let installed = || daemon.ovs("ovs-appctl", &["dpctl/dump-flows"]).unwrap().stdout.contains("0x88b5");
    wait_for(LIMIT, "the megaflow", installed).unwrap();
    daemon
}

/// Stops a daemon while frames fill its receive queue, then continues it; all frames leave in order.
pub(crate) fn burst(net: &Topology, daemon: &mut Daemon, frames: usize) {
    let [one, outputs @ ..] = &net.hosts[..] else { panic!("three hosts") };
    let senders: Vec<String> = (0..frames).map(|n| format!("02:aa:00:00:00:{n:02x}")).collect();
    let burst: Vec<_> = senders.iter().map(|from| Frame { to: BROADCAST, from, vlan: None }).collect();
    daemon.signal(Signal::STOP).unwrap();
    wait_stopped(daemon);
    let arrived = watch(&net.switch, &one.port);
    let left: Vec<Capture> = outputs.iter().map(|h| watch(&h.netns, &h.dev)).collect();
    send(one, &burst);
    // The daemon's socket has received every frame in the capture.
    let all = |c: &Capture| seen(&c.lines()).len() >= frames;
    wait_for(LIMIT, "the frames at the switch", || all(&arrived)).unwrap();
    assert!(left.iter().all(|c| c.lines().is_empty()), "a stopped daemon forwards");
    daemon.signal(Signal::CONT).unwrap();
    wait_for(LIMIT, "the frames behind the switch", || left.iter().all(all)).unwrap();
    for capture in left {
        let lines = capture.stop().unwrap();
        let came: Vec<String> = seen(&lines).into_iter().map(|(from, _)| from).collect();
        assert_eq!(came, senders, "{lines:#?}");
    }
}

/// Traces [`burst`]; returns the calls.
fn traced_burst(net: &Topology, daemon: &mut Daemon, inject: Option<&str>) -> BTreeMap<String, Vec<Call>> {
    let trace = Trace::start(daemon, inject);
    burst(net, daemon, FRAMES);
    trace.stop(net, daemon)
}

#[test]
fn a_burst_is_sent_by_one_sendmmsg_per_port_or_by_sendmsg() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "tcpdump");
    require_strace!();
    let net = Topology::new(3).unwrap();
    let at_each = |calls: Vec<Call>| -> BTreeMap<String, Vec<Call>> {
        net.hosts[1..].iter().map(|host| (host.port.clone(), calls.clone())).collect()
    };
    // By the socket that receives: each frame has a header of 10 bytes.
    let each = vec![call("sendmsg", None, "74"); FRAMES];

    // An idle port has no ring. The hosts' own frames may arrive in between; they are dropped.
    let without_received = |mut calls: BTreeMap<String, Vec<Call>>| {
        let received: Vec<Call> =
            calls.values_mut().flat_map(|c| c.extract_if(.., |c| c.name == "recvmmsg")).collect();
        let whole = |c: &Call| c.messages == Some(32) && c.result.parse().is_ok_and(|n: usize| n >= FRAMES);
        assert!(received.iter().any(whole), "{received:?}");
        calls.retain(|_, calls| !calls.is_empty());
        calls
    };

    let mut daemon = fan_out(&net, &[]);
    let calls = without_received(traced_burst(&net, &mut daemon, None));
    let one = vec![call("sendmmsg", Some(FRAMES), &FRAMES.to_string())];
    assert_eq!(calls, at_each(one), "one call a port");

    let calls = without_received(traced_burst(&net, &mut daemon, Some("sendmmsg:error=ENOSYS")));
    let mut instead = vec![call("sendmmsg", Some(FRAMES), "ENOSYS")];
    instead.extend(each.clone());
    assert_eq!(calls, at_each(instead), "sendmmsg is tried once");
    drop(daemon);

    let mut daemon = fan_out(&net, &["--without=sendmmsg,ring"]);
    let calls = without_received(traced_burst(&net, &mut daemon, None));
    assert_eq!(calls, at_each(each), "no sendmmsg");
}
