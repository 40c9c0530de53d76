//! PMD threads configured by the database: number, cores, assignment of queues, and changes of each under traffic.

use std::fmt::Write as _;
use std::time::Duration;

use testkit::{Daemon, Host, Netns, Running, require_netns, require_programs, wait_for};

use crate::helpers::{BROADCAST, Frame, kernel_rx_packets};
use crate::helpers::{LIMIT, PYTHON, appctl, appctl_output, send, switch, vsctl, wait_log};

/// Waits until one host reaches another.
fn reach(from: &Host, to: &Host) {
    testkit::reachable(&from.netns, to.ipv4.into(), LIMIT).unwrap();
}

/// Sets keys of `Open_vSwitch.other_config`; returns when the switch has applied them.
fn set(daemon: &Daemon, settings: &str) {
    let words = settings.split_whitespace().fold(String::new(), |mut line, setting| {
        let _ = write!(line, " other_config:{setting}");
        line
    });
    vsctl(daemon, &format!("set Open_vSwitch .{words}"));
}

/// Parses `pmd-rxq-show`: cores in order, each with its isolation and its queues.
fn shown(daemon: &Daemon) -> Vec<(u16, bool, Vec<(String, u16)>)> {
    let text = appctl(daemon, "dpif-netdev/pmd-rxq-show");
    let mut all: Vec<(u16, bool, Vec<(String, u16)>)> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["pmd", "thread", "numa_id", "0", "core_id", core] => {
                all.push((core.trim_end_matches(':').parse().unwrap(), false, Vec::new()));
            }
            ["isolated", ":", isolated] => all.last_mut().unwrap().1 = isolated == "true",
            ["port:", port, "queue-id:", queue, "(enabled)", "pmd", "usage:", ..] => {
                all.last_mut().unwrap().2.push((port.to_string(), queue.parse().unwrap()));
            }
            ["overhead:", _, "%"] | ["Displaying", "last", "60", "seconds", "pmd", "usage", "%"] => {}
            _ => panic!("{line:?} in\n{text}"),
        }
    }
    all
}

/// The core that polls a queue.
fn core_of(daemon: &Daemon, port: &str, queue: u16) -> u16 {
    let all = shown(daemon);
    let polls =
        |(_, _, queues): &&(u16, bool, Vec<(String, u16)>)| queues.contains(&(port.to_string(), queue));
    all.iter().find(polls).unwrap_or_else(|| panic!("nobody polls {port} {queue}: {all:?}")).0
}

/// Forwarding threads of the process: name, thread id, processors it may run on.
fn threads(daemon: &Daemon) -> Vec<(String, u32, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let mut all: Vec<_> = tasks
        .flatten()
        .filter_map(|task| {
            let read = |name: &str| std::fs::read_to_string(task.path().join(name)).ok();
            let name = read("comm")?.trim().to_string();
            let status = read("status")?;
            let cpus = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?.trim().to_string();
            let id = task.file_name().to_string_lossy().parse().ok()?;
            name.starts_with("pmd-c").then_some((name, id, cpus))
        })
        .collect();
    all.sort();
    all
}

/// Names of the forwarding threads.
pub(crate) fn names(daemon: &Daemon) -> Vec<String> {
    threads(daemon).into_iter().map(|(name, ..)| name).collect()
}

/// Waits for these forwarding threads: one that has ended is in /proc a little longer than its join.
fn wait_names(daemon: &Daemon, wanted: &[&str]) {
    wait_for(LIMIT, "the threads", || names(daemon) == wanted)
        .unwrap_or_else(|why| panic!("{why}: {:?}", names(daemon)));
}

/// One counter of a thread in `pmd-stats-show`.
fn stat(daemon: &Daemon, core: u16, name: &str) -> u64 {
    let text = appctl(daemon, &format!("dpif-netdev/pmd-stats-show -pmd {core}"));
    let line =
        text.lines().find_map(|l| l.trim().strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    line.trim_start_matches(':').split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn threads_follow_the_cpu_mask() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ping");
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return eprintln!("SKIP: two processors are needed");
    }
    let (net, daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    assert_eq!(names(&daemon), ["pmd-c00"]);
    let unbound = threads(&daemon)[0].2.clone();
    set(&daemon, "pmd-cpu-mask=0x3");
    assert_eq!(names(&daemon), ["pmd-c00", "pmd-c01"], "as soon as ovs-vsctl returns");
    let cpus: Vec<String> = threads(&daemon).into_iter().map(|(_, _, cpus)| cpus).collect();
    assert_eq!(cpus, ["0", "1"]);
    // br0, and a queue of each host, distributed over the cores.
    let all = shown(&daemon);
    assert_eq!(all.iter().map(|t| (t.0, t.1)).collect::<Vec<_>>(), [(0, false), (1, false)]);
    assert!(
        all.iter().all(|t| !t.2.is_empty()) && all.iter().map(|t| t.2.len()).sum::<usize>() == 3,
        "{all:?}"
    );
    reach(one, two);
    let dump = appctl(&daemon, "dpctl/dump-flows");
    for core in [core_of(&daemon, &one.port, 0), core_of(&daemon, &two.port, 0)] {
        assert!(dump.contains(&format!("flow-dump from pmd on cpu core: {core}\n")), "{core}: {dump}");
        assert!(stat(&daemon, core, "packets received") > 0);
        assert!(stat(&daemon, core, "processing cycles") > 0 && stat(&daemon, core, "idle cycles") > 0);
    }
    set(&daemon, "pmd-cpu-mask=2");
    wait_names(&daemon, &["pmd-c01"]);
    reach(one, two);
    vsctl(&daemon, "remove Open_vSwitch . other_config pmd-cpu-mask");
    wait_names(&daemon, &["pmd-c00"]);
    assert_eq!(threads(&daemon)[0].2, unbound);
    reach(one, two);
    let usage = appctl(&daemon, "dpif-netdev/pmd-rxq-show -pmd 0 -secs 12");
    assert!(
        usage.starts_with(
            "Displaying last 15 seconds pmd usage %\npmd thread numa_id 0 core_id 0:\n  isolated : false\n"
        ),
        "{usage}"
    );
    assert_eq!(appctl(&daemon, "dpif-netdev/pmd-rxq-show -pmd 1"), "");
    assert!(appctl_output(&daemon, "dpif-netdev/pmd-rxq-show -pmd x").stderr.contains("-pmd needs"));
}

#[test]
fn invalid_settings_are_logged_and_ignored() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ping");
    let (net, daemon) = switch(2);
    set(&daemon, "pmd-cpu-mask=0x8000000000000000000000000000 pmd-rxq-assign=random");
    wait_log(&daemon, "no core of pmd-cpu-mask is online");
    wait_log(
        &daemon,
        "Unsupported rx queue to PMD assignment mode in pmd-rxq-assign. Defaulting to 'cycles'.",
    );
    assert_eq!(names(&daemon), ["pmd-c00"]);
    vsctl(&daemon, &format!("set Interface {} other_config:pmd-rxq-affinity=0:9", net.hosts[0].port));
    wait_log(&daemon, "|WARN|Core  9 cannot be pinned with port '");
    reach(&net.hosts[0], &net.hosts[1]);
    assert_eq!(appctl(&daemon, "dpif-netdev/pmd-rxq-rebalance"), "pmd rxq rebalance requested.\n");
    set(&daemon, "pmd-sleep-max=\"50,0:7\"");
    let sleep = "Default max sleep:   50 us\npmd thread numa_id 0 core_id 0:\n  max sleep:    7 us\n";
    assert_eq!(appctl(&daemon, "dpif-netdev/pmd-sleep-show"), sleep);
    reach(&net.hosts[0], &net.hosts[1]);
}

const RECEIVE: &str = "\
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 1 << 23)
s.bind(('', 7000))
s.settimeout(60)
print('listening', flush=True)
expected, got, lost, wrong = {}, 0, 0, 0
while True:
    data, (_, port) = s.recvfrom(2048)
    if data == b'end':
        break
    number, due = int(data), expected.get(port, 0)
    got += 1
    lost += max(number - due, 0)
    wrong += number < due
    expected[port] = max(number + 1, due)
print('received', got, 'lost', lost, 'wrong', wrong, flush=True)
";

/// Sends numbered datagrams of several flows at an even rate, without bursts after a delay, then one that marks the end.
const SEND: &str = "\
import socket, sys, time
to, flows, each, rate = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(flows)]
start = time.monotonic()
sent = 0
for n in range(each):
    for s in socks:
        s.sendto(str(n).encode(), (to, 7000))
        sent += 1
    ahead = sent / rate - (time.monotonic() - start)
    if ahead > 0:
        time.sleep(ahead)
    else:
        start -= ahead
time.sleep(1)
socks[0].sendto(b'end', (to, 7000))
";

/// Starts a program that receives the datagrams of [`SEND`]; returns once it is ready.
fn receiver(netns: &Netns) -> Running {
    let running = netns.spawn(PYTHON, &["-c", RECEIVE]).unwrap();
    wait_for(LIMIT, "the receiver", || running.stdout().contains("listening")).unwrap();
    running
}

/// Echo requests sent and replies received by a host, by its kernel.
fn echoes(netns: &Netns) -> [u64; 2] {
    let text = netns.run("cat", &["/proc/net/snmp"]).unwrap().stdout;
    let rows: Vec<Vec<&str>> =
        text.lines().filter(|l| l.starts_with("Icmp:")).map(|l| l.split_whitespace().collect()).collect();
    ["OutEchos", "InEchoReps"].map(|name| {
        let at = rows[0].iter().position(|n| *n == name).unwrap();
        rows[1][at].parse().unwrap()
    })
}

#[test]
fn ports_keep_every_packet_and_its_order_while_threads_and_other_ports_change() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ping");
    let (net, daemon) = switch(4);
    let [one, two, three, four] = &net.hosts[..] else { panic!("four hosts") };
    let (flows, each) = (6, 2500);
    reach(one, two);
    reach(three, two);
    let receiver = receiver(&two.netns);
    let to = two.ipv4.to_string();
    let args = ["-c", SEND, &to, &flows.to_string(), &each.to_string(), "2000"];
    let sender = one.netns.spawn(PYTHON, &args).unwrap();
    let pings = three.netns.spawn("ping", &["-n", "-q", "-i", "0.005", "-c", "1000", &to]).unwrap();
    let plans = [
        "pmd-cpu-mask=0x3 pmd-rxq-assign=roundrobin",
        "pmd-cpu-mask=0x2 pmd-rxq-assign=cycles",
        "pmd-cpu-mask=0x3 pmd-rxq-assign=group",
        "pmd-cpu-mask=0x1 pmd-rxq-assign=cycles",
    ];
    let pin = |core: usize| format!("set Interface {} other_config:pmd-rxq-affinity=0:{core}", one.port);
    for n in 0..20 {
        set(&daemon, plans[n % plans.len()]);
        vsctl(&daemon, &format!("del-port {} -- {}", four.port, pin(n / 2 % 2)));
        vsctl(&daemon, &format!("add-port br0 {}", four.port));
        appctl(&daemon, "dpif-netdev/pmd-rxq-rebalance");
    }
    let out = pings.wait(Duration::from_secs(60)).unwrap();
    assert!(out.stdout.contains("1000 packets transmitted"), "{}", out.stdout);
    wait_for(LIMIT, "every ping to be answered", || {
        let [sent, answered] = echoes(&three.netns);
        sent >= 1000 && sent == answered
    })
    .unwrap();
    sender.wait(Duration::from_secs(60)).unwrap();
    let out = receiver.wait(Duration::from_secs(60)).unwrap();
    let last = out.stdout.lines().last().unwrap_or_default();
    let words: Vec<&str> = last.split_whitespace().collect();
    let ["received", received, "lost", lost, "wrong", "0"] = words[..] else { panic!("{}", out.stdout) };
    let (received, lost): (u64, u64) = (received.parse().unwrap(), lost.parse().unwrap());
    assert_eq!(received + lost, flows * each);
    // None is lost but in a ring that is full, while the machine lets no thread run: those are counted.
    let counter = |name: &str| -> u64 {
        vsctl(&daemon, &format!("get Interface {} statistics:{name}", one.port)).parse().unwrap()
    };
    wait_for(LIMIT, "lost packets to be counted", || counter("rx_dropped") >= lost).unwrap();
    let log = daemon.log();
    assert!(
        log.matches(" created.").count() >= 10 && log.matches(" destroyed.").count() >= 10,
        "threads did not change"
    );
    // Counters of an unchanged port have not decreased.
    let counted = counter("rx_packets");
    wait_for(LIMIT, "the counters in the database", || {
        let now = counter("rx_packets");
        assert!(now >= counted);
        now + counter("rx_dropped") >= flows * each
    })
    .unwrap();
}

#[test]
fn rxq_affinity_pins_queues_to_cores() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ping");
    let (net, daemon) = switch(3);
    let [one, two, three] = &net.hosts[..] else { panic!("three hosts") };
    set(&daemon, "pmd-cpu-mask=0x3");
    for core in [1, 0, 1] {
        vsctl(&daemon, &format!("set Interface {} other_config:pmd-rxq-affinity=0:{core}", one.port));
        assert_eq!(core_of(&daemon, &one.port, 0), core);
        let isolated: Vec<u16> = shown(&daemon).iter().filter(|t| t.1).map(|t| t.0).collect();
        assert_eq!(isolated, [core]);
        assert!([&two.port, &three.port].iter().all(|port| core_of(&daemon, port, 0) == 1 - core));
        reach(one, two);
    }
    // Without isolation, other queues may share the core.
    set(&daemon, "pmd-rxq-assign=group pmd-rxq-isolate=false");
    assert_eq!(core_of(&daemon, &one.port, 0), 1);
    assert!(shown(&daemon).iter().all(|t| !t.1 && !t.2.is_empty()));
    vsctl(&daemon, &format!("remove Interface {} other_config pmd-rxq-affinity", one.port));
    reach(one, three);
}

#[test]
fn a_port_with_two_queues_is_polled_by_two_threads_and_flows_keep_their_order() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ping");
    let (net, daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    set(&daemon, "pmd-cpu-mask=0x3");
    vsctl(
        &daemon,
        &format!("set Interface {} options:n_rxq=2 other_config:pmd-rxq-affinity=0:0,1:1", one.port),
    );
    assert_eq!([0, 1].map(|queue| core_of(&daemon, &one.port, queue)), [0, 1]);
    reach(one, two);
    appctl(&daemon, "dpif-netdev/pmd-stats-clear");
    let receiver = receiver(&two.netns);
    let to = two.ipv4.to_string();
    one.netns.run(PYTHON, &["-c", SEND, &to, "32", "50", "4000"]).unwrap();
    let out = receiver.wait(Duration::from_secs(60)).unwrap();
    assert!(out.stdout.contains("received 1600 lost 0 wrong 0"), "{}", out.stdout);
    let received = [0, 1].map(|core| stat(&daemon, core, "packets received"));
    assert!(received.iter().all(|n| *n >= 100) && received.iter().sum::<u64>() >= 1600, "{received:?}");
    vsctl(&daemon, &format!("set Interface {} options:n_rxq=1", one.port));
    reach(one, two);
    assert_eq!(shown(&daemon).iter().flat_map(|t| &t.2).filter(|q| q.0 == one.port).count(), 1);
}

#[test]
fn rules_count_the_packets_of_all_threads_and_a_meter_limits_them_as_one() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl");
    let (net, daemon) = switch(3);
    let [one, two, three] = &net.hosts[..] else { panic!("three hosts") };
    let of = |line: &str| {
        let args: Vec<&str> = ["-O", "OpenFlow13"].into_iter().chain(line.split_whitespace()).collect();
        daemon.ovs("ovs-ofctl", &args).unwrap().stdout
    };
    set(&daemon, "pmd-cpu-mask=0x3");
    for (host, core) in [(one, 0), (two, 1)] {
        vsctl(&daemon, &format!("set Interface {} other_config:pmd-rxq-affinity=0:{core}", host.port));
    }
    of("add-meter br0 meter=1,pktps,burst,stats,bands=type=drop,rate=1,burst_size=100");
    of("del-flows br0");
    of("add-flow br0 dl_type=0x88b5,actions=meter:1,output:3");
    let before = kernel_rx_packets(&three.netns, &three.dev);
    appctl(&daemon, "dpif-netdev/pmd-stats-clear");
    // Both at once, each above the meter's rate (and below the limit of the upcall queue).
    let frame = |from| Frame { to: BROADCAST, from, vlan: None };
    std::thread::scope(|scope| {
        scope.spawn(|| send(one, &[frame("02:aa:00:00:00:01"); 200]));
        scope.spawn(|| send(two, &[frame("02:aa:00:00:00:02"); 200]));
    });
    let counted =
        || of("dump-flows br0").split("n_packets=").nth(1).unwrap().split(',').next().unwrap().to_string();
    wait_for(LIMIT, "all packets of both threads to be counted", || counted() == "400").unwrap();
    assert!([0, 1].iter().all(|core| stat(&daemon, *core, "packets received") >= 200));
    let passed = kernel_rx_packets(&three.netns, &three.dev) - before;
    assert!((95..150).contains(&passed), "{passed} of 400 passed a meter of 100");
    let stats = of("meter-stats br0 meter=1");
    assert!(stats.contains("packet_in_count:400"), "{stats}");
}

#[test]
fn overloaded_threads_are_balanced_after_a_minute() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ping");
    if !testkit::long() {
        return eprintln!("SKIP: takes a minute (SLUICE_LONG=1)");
    }
    let (net, daemon) = switch(4);
    // A threshold below any load, so the result does not depend on the machine.
    set(&daemon, "pmd-cpu-mask=0x3 pmd-rxq-assign=group pmd-auto-lb=true pmd-auto-lb-load-threshold=0");
    wait_log(
        &daemon,
        "PMD auto load balance is enabled, interval 1 mins, pmd load threshold 0%, improvement threshold 25%.",
    );
    let core = |n: usize| core_of(&daemon, &net.hosts[n].port, 0);
    let shared: Vec<usize> = (0..4).filter(|n| core(*n) == core(0)).collect();
    let [a, b] = shared[..2] else { panic!("{shared:?}") };
    // Only two ports, both on one thread, have traffic.
    let to = net.hosts[b].ipv4.to_string();
    let flood = net.hosts[a].netns.spawn("ping", &["-n", "-q", "-f", &to]).unwrap();
    wait_for(Duration::from_secs(100), "the queues to be shared out anew", || core(a) != core(b)).unwrap();
    drop(flood);
    assert!(daemon.log().contains("PMD auto load balance dry run."), "{}", daemon.log());
}

/// Processor time of a thread in clock ticks of 10 ms.
fn ticks(daemon: &Daemon, thread: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/task/{thread}/stat", daemon.pid())).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Times that a thread has gone to sleep: its voluntary context switches (proc_pid_status(5)).
fn sleeps(daemon: &Daemon, thread: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/task/{thread}/status", daemon.pid())).unwrap();
    let count = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    count.trim().parse().unwrap()
}

#[test]
fn idle_threads_sleep_and_wake_on_the_first_packet() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ping");
    let (net, daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    set(&daemon, "pmd-cpu-mask=0x3");
    reach(one, two);
    let threads = threads(&daemon);
    let used = || threads.iter().map(|t| (ticks(&daemon, t.1), sleeps(&daemon, t.1))).collect::<Vec<_>>();
    let before = used();
    // Single packets, each long after the previous one.
    let out = one.netns.run("ping", &["-n", "-i", "0.5", "-c", "6", &two.ipv4.to_string()]).unwrap();
    assert!(out.stdout.contains("6 received, 0% packet loss"), "{}", out.stdout);
    for ((name, ..), (before, after)) in threads.iter().zip(before.into_iter().zip(used())) {
        // A thread that polls uses all of a processor, or its share of a loaded one, and never sleeps.
        let (spent, slept) = (after.0 - before.0, after.1 - before.1);
        assert!(spent <= 50 && (2..=60).contains(&slept), "{name}: {spent} ticks, {slept} sleeps in 2.5 s");
    }
    // Threads that slept for times of their own, sixty times at most, would hardly ever be that fast.
    let mostly_fast = || {
        let out =
            one.netns.run("ping", &["-n", "-i", "0.137", "-c", "20", &two.ipv4.to_string()]).unwrap().stdout;
        let ms = out.lines().filter_map(|l| l.split("time=").nth(1)?.split(' ').next()?.parse::<f64>().ok());
        ms.filter(|ms| *ms < 10.0).count() > 10
    };
    assert!((0..5).any(|_| mostly_fast()), "first packets after a pause take 10 ms");
}

#[test]
fn processors_sleep_lightly_while_there_is_some_traffic() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ping");
    if let Err(e) = std::fs::File::options().write(true).open("/dev/cpu_dma_latency") {
        return eprintln!("SKIP: fast wake-ups: {e}");
    }
    let (net, daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    reach(one, two);
    let wishes = || {
        let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
        let is_wish = |fd: &std::fs::DirEntry| {
            std::fs::read_link(fd.path()).is_ok_and(|file| file.ends_with("cpu_dma_latency"))
        };
        open.flatten().filter(is_wish).count()
    };
    assert_eq!(wishes(), 0, "not for single packets");
    let some = || one.netns.spawn("ping", &["-n", "-q", "-i", "0.002", &two.ipv4.to_string()]).unwrap();
    let pings = some();
    wait_for(LIMIT, "processors kept from deep sleep", || wishes() == 1).unwrap();
    set(&daemon, "pmd-fast-wakeup=false");
    wait_for(LIMIT, "processors left alone", || wishes() == 0).unwrap();
    set(&daemon, "pmd-fast-wakeup=true");
    wait_for(LIMIT, "processors kept from deep sleep again", || wishes() == 1).unwrap();
    drop(pings);
    wait_for(LIMIT, "the end of it after the traffic", || wishes() == 0).unwrap();
}

#[test]
fn pmd_commands_of_dummies() {
    require_programs!("ovs-vsctl", "ovs-appctl");
    require_netns!();
    let netns = Netns::new("dummies").unwrap();
    let daemon = crate::helpers::spec(&netns).args(["--enable-dummy"]).start().unwrap();
    vsctl(&daemon, "add-br br0 -- set Bridge br0 datapath_type=dummy fail_mode=secure");
    assert_eq!(appctl(&daemon, "dpif-netdev/pmd-rxq-show"), "Displaying last 60 seconds pmd usage %\n");
    vsctl(&daemon, "add-port br0 p0 -- set Interface p0 type=dummy-pmd options:n_rxq=4");
    set(&daemon, "pmd-cpu-mask=0x18 pmd-rxq-assign=roundrobin");
    let row =
        |queue: u16| format!("  port: p0                queue-id: {queue:2} (enabled)   pmd usage:  0 %\n");
    let thread = |core: u16, queues: [u16; 2]| {
        let [a, b] = queues.map(row);
        format!("pmd thread numa_id 0 core_id {core}:\n  isolated : false\n{a}{b}  overhead:  0 %\n")
    };
    // A loaded machine shows some overhead of the threads' own.
    let shown = |line: &str| {
        let overhead = |line: &str| match line.starts_with("  overhead:") {
            true => "  overhead:  0 %\n".to_owned(),
            false => format!("{line}\n"),
        };
        appctl(&daemon, line).lines().map(overhead).collect::<String>()
    };
    let text = shown("dpif-netdev/pmd-rxq-show");
    assert_eq!(
        text,
        format!("Displaying last 60 seconds pmd usage %\n{}{}", thread(3, [0, 2]), thread(4, [1, 3]))
    );
    vsctl(&daemon, "set Interface p0 other_config:pmd-rxq-affinity=0:4,3:4");
    let text = shown("dpif-netdev/pmd-rxq-show -pmd 4");
    let isolated = thread(4, [0, 3]).replace("isolated : false", "isolated : true");
    assert_eq!(text, format!("Displaying last 60 seconds pmd usage %\n{isolated}"));
}
