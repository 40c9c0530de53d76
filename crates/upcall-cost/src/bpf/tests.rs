use super::permit::reasons;
use super::record::{Layout, Named};
use super::*;
use upcall_events::{Event, Why};

/// Reason for skipping a test.
const REFUSED: &str = "eBPF is not available";

/// A record as the kernel's programs write it.
fn record(stage: u8, why: u8, packet: &[u8; 8], held: [u16; 2]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend([7u64, 0xabcd].map(u64::to_ne_bytes).concat());
    out.extend([31u32, 5, 100, 17].map(u32::to_ne_bytes).concat());
    out.extend([3u16, 64, held[0], held[1]].map(u16::to_ne_bytes).concat());
    out.extend([stage, why, 0, 0, 0, 0, 0, 0]);
    out.extend(b"handler0\0garbage");
    out.extend(packet);
    out
}

#[test]
fn records_of_the_buffer_are_read_and_foreign_ones_left_out() {
    let layout = Layout { packet_bytes: 6, key_bytes: 2 };
    let bytes = record(4, 1, b"packetKY", [6, 2]);
    let (event, name) = layout.read(&bytes).unwrap();
    let expected = Event {
        stage: Stage::Received,
        why: Why::Miss,
        time_ns: 7,
        upcall: 0xabcd,
        thread: 31,
        cpu: 3,
        batch: 64,
        port: 5,
        packet_bytes: 100,
        error: 17,
        packet: b"packet".to_vec(),
        key: b"KY".to_vec(),
    };
    assert_eq!((event, name), (expected, Named::Thread("handler0".to_string())));
    let mut of_port = bytes.clone();
    of_port[42] = 1;
    assert_eq!(layout.read(&of_port).unwrap().1, Named::Port("handler0".to_string()));
    // Captured less than the space.
    assert_eq!(layout.read(&record(4, 1, b"pa    K ", [2, 1])).unwrap().0.packet, b"pa");
    // Without a packet and a key there is no space for them.
    let short = record(10, 3, b"        ", [0, 0]);
    assert!(layout.read(&short[..64]).unwrap().0.packet.is_empty());

    assert_eq!(layout.read(&record(11, 1, b"packetKY", [6, 2])), None, "no such stage");
    assert_eq!(layout.read(&record(0, 1, b"packetKY", [6, 2])), None);
    assert_eq!(layout.read(&record(4, 9, b"packetKY", [6, 2])), None, "no such reason");
    for len in 0..64 {
        assert_eq!(layout.read(&bytes[..len]), None);
    }
    // A claimed length above the space is clamped.
    assert_eq!(layout.read(&record(4, 1, b"packetKY", [60_000, 60_000])).unwrap().0.key, b"KY");
}

#[test]
fn a_refusal_says_what_is_missing() {
    let all = "Name:\tsluice\nCapEff:\t000001ffffffffff\n";
    let none = "CapEff:\t0000000000000000\n";
    let bpf_only = "CapEff:\t0000008000000000\n";
    let check = |status, lockdown, btf, refused, expected: &[&str]| {
        let why = reasons(status, lockdown, btf, refused);
        assert_eq!(why.is_empty(), expected.is_empty(), "{why}");
        assert!(expected.iter().all(|e| why.contains(e)), "{why}");
    };
    check(all, "[none] integrity confidentiality\n", true, false, &[]);
    check(all, "", true, true, &["although the capabilities are there"]);
    check(none, "", true, true, &["lacks CAP_BPF and CAP_PERFMON"]);
    check(bpf_only, "", true, true, &["lacks CAP_PERFMON (run"]);
    check(all, "none integrity [confidentiality]\n", true, true, &["locked down"]);
    check(none, "", false, false, &["CAP_BPF", "CONFIG_DEBUG_INFO_BTF"]);
}

/// Capture settings of these tests.
fn capture(pid: Option<u32>, run_dir: &Path) -> Capture {
    let run_dir = run_dir.to_path_buf();
    Capture { pid, run_dir, packet_bytes: 64, key_bytes: 64, buffer_pages: 16, debug: false }
}

#[test]
fn a_process_without_a_switch_is_refused() {
    let empty = testkit::TempDir::new("bpf").unwrap();
    let refused = |pid| match open(&capture(pid, empty.path())) {
        Ok(bpf) => panic!("traces {}", bpf.describe()),
        Err(e) => format!("{e:#}"),
    };
    assert!(refused(None).contains("no switch runs there"));
    assert!(refused(Some(u32::MAX >> 1)).contains("cannot be traced"));
    // Elsewhere eBPF is refused earlier.
    let other = testkit::Cmd::new("sleep").arg("60").spawn().unwrap();
    let why = refused(Some(other.pid()));
    assert!(why.contains("has no probes") || why.contains(REFUSED), "{why}");
}

#[test]
fn programs_for_the_kernels_datapath_load_and_report_without_a_process() {
    let empty = testkit::TempDir::new("bpf").unwrap();
    let layout = Layout { packet_bytes: 64, key_bytes: 64 };
    let object = match load(
        &capture(None, empty.path()),
        layout,
        Target { pid: u32::MAX, pid_namespace: (0, 0), net: 0 },
        true,
    ) {
        Ok(object) => object,
        Err(e) => {
            let why = format!("{:#}", permit::explain(e));
            assert!(why.contains(REFUSED), "{why}");
            testkit::skip("programs_for_the_kernels_datapath_load_and_report_without_a_process", &why);
            return;
        }
    };
    let taken = Rc::new(RefCell::new(Consumed::default()));
    let ring = ring(&object, layout, true, taken.clone()).unwrap();
    let program = object.progs_mut().find(|p| p.name() == "kernel_miss").unwrap();
    // Addresses that cannot be read: a miss without its packet.
    let mut arguments = [0u8; 32];
    let input = libbpf_rs::ProgramInput { context_in: Some(&mut arguments), ..Default::default() };
    program.test_run(input).unwrap();
    assert!(ring.consume_raw() >= 0);
    let reported = std::mem::take(&mut taken.borrow_mut().records);
    let Some(Record::Event(event)) = reported.back() else { panic!("{reported:?}") };
    assert_eq!(
        (event.stage, event.why, event.port, event.packet.len()),
        (Stage::Miss, Why::Unknown, Event::NO_PORT, 0)
    );
}

sys::usdt! {
    /// As in a stock switch.
    probe stock_recv_upcall = "dpif_recv", "recv_upcall", (name, kind, packet, bytes, key, key_bytes);
    /// Its second argument is the address of a structure.
    probe stock_flow_put = "dpif_netlink_operate__", "op_flow_put", (dpif, put, flow, request);
    /// As in a stock switch.
    probe stock_flow_execute = "dpif_netlink_operate__", "op_flow_execute", (dpif, execute, packet, bytes, request);
}

/// The first members of `struct dpif_flow_put`.
#[repr(C)]
struct Put {
    flags: u32,
    key: u64,
    key_bytes: u64,
}

#[test]
fn probes_of_a_stock_switch_report_packets_and_keys() {
    let empty = testkit::TempDir::new("bpf").unwrap();
    // This process plays the switch.
    let mut source = match open(&capture(Some(std::process::id()), empty.path())) {
        Ok(source) => source,
        Err(e) => {
            let why = format!("{e:#}");
            assert!(why.contains(REFUSED), "{why}");
            testkit::skip("probes_of_a_stock_switch_report_packets_and_keys", &why);
            return;
        }
    };
    assert!(stock_recv_upcall::armed() && stock_flow_put::armed() && stock_flow_execute::armed());
    let address = |bytes: &[u8]| bytes.as_ptr().addr() as u64;
    let (packet, key) = ([7u8; 100], [9u8; 20]);
    stock_recv_upcall::fire(address(b"system@x\0"), 1, address(&packet), 100, address(&key), 20);
    let put = Put { flags: 1, key: address(&key), key_bytes: 20 };
    stock_flow_put::fire(0, std::ptr::from_ref(&put).addr() as u64, 0, 0);
    stock_flow_execute::fire(0, 0, address(&packet), 100, 0);
    // Unreadable memory is omitted.
    stock_flow_execute::fire(0, 0, 8, 100, 0);

    let mut events = Vec::new();
    let begun = Instant::now();
    while events.len() < 4 && begun.elapsed() < Duration::from_secs(20) {
        if let Polled::Record(Record::Event(event)) = source.next(Duration::from_millis(100)).unwrap() {
            events.push(event);
        }
    }
    let shown: Vec<_> = events
        .iter()
        .map(|e| (e.stage, e.why, e.upcall, e.packet_bytes, e.packet.len(), e.key.len()))
        .collect();
    let expected = [
        (Stage::Received, Why::Action, 0, 100, 64, 20),
        (Stage::PutSent, Why::Miss, 0, 0, 0, 20),
        (Stage::ExecuteSent, Why::Unknown, 0, 100, 64, 0),
        (Stage::ExecuteSent, Why::Unknown, 0, 100, 0, 0),
    ];
    assert_eq!(shown, expected);
    assert_eq!(
        (&events[0].packet[..], &events[1].key[..], events[0].port),
        (&packet[..64], &key[..], Event::NO_PORT)
    );
}

#[test]
fn a_process_is_known_by_its_own_namespace() {
    for (status, expected) in [
        ("Name:\tx\nNSpid:\t77\n", Some(77)),
        ("NSpid:\t4242\t31\t7\nNSpgid:\t1\n", Some(7)),
        ("Name:\tNSpid: 3\n", None),
        ("NSpid:\t\n", None),
    ] {
        assert_eq!(id_in_own_namespace(status), expected, "{status:?}");
    }
    for (device, expected) in [(4, 4), (0x801, 8 << 20 | 1), (0x10_0102, 1 << 20 | 0x102)] {
        assert_eq!(kernel_device(device), expected, "{device:#x}");
    }
}

#[test]
fn a_switch_in_a_pid_namespace_of_its_own_is_traced() {
    testkit::require_programs!("unshare");
    let test = "bpf::tests::probes_of_a_stock_switch_report_packets_and_keys";
    // There the process id differs from the one seen by the kernel's programs.
    let own = std::env::current_exe().unwrap();
    let out = testkit::Cmd::new("unshare")
        .args(["--pid", "--fork", "--mount-proc"])
        .arg(own)
        .args(["--exact", test])
        .env(testkit::FOREIGN_PIDS, "1")
        .limit(Duration::from_secs(60))
        .output()
        .unwrap();
    if out.stderr.contains("unshare failed") {
        testkit::skip("a_switch_in_a_pid_namespace_of_its_own_is_traced", &out.stderr);
        return;
    }
    assert!(out.status.success() && out.stdout.contains("1 passed"), "{}{}", out.stdout, out.stderr);
}
