use super::permit::reasons;
use super::record::Layout;
use super::*;
use upcall_events::{Event, Why};

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
    assert_eq!((event, name.as_str()), (expected, "handler0"));
    // Held less than there is room for.
    assert_eq!(layout.read(&record(4, 1, b"pa    K ", [2, 1])).unwrap().0.packet, b"pa");
    // Without a packet and a key there is no room for them.
    let short = record(10, 3, b"        ", [0, 0]);
    assert!(layout.read(&short[..64]).unwrap().0.packet.is_empty());

    assert_eq!(layout.read(&record(11, 1, b"packetKY", [6, 2])), None, "no such stage");
    assert_eq!(layout.read(&record(0, 1, b"packetKY", [6, 2])), None);
    assert_eq!(layout.read(&record(4, 9, b"packetKY", [6, 2])), None, "no such reason");
    for len in 0..64 {
        assert_eq!(layout.read(&bytes[..len]), None);
    }
    // More held than there is: as much as the layout has room for.
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

#[test]
fn what_is_no_switch_is_refused_with_the_reason() {
    let empty = testkit::TempDir::new("bpf").unwrap();
    let capture = |pid| Capture {
        pid,
        run_dir: empty.path().to_path_buf(),
        packet_bytes: 64,
        key_bytes: 64,
        buffer_pages: 16,
        debug: false,
    };
    let refused = |pid| match open(&capture(pid)) {
        Ok(bpf) => panic!("traces {}", bpf.describe()),
        Err(e) => format!("{e:#}"),
    };
    assert!(refused(None).contains("no switch runs there"));
    assert!(refused(Some(u32::MAX >> 1)).contains("cannot be traced"));
    // This process has no probes of a switch; elsewhere eBPF is refused before.
    let own = refused(Some(std::process::id()));
    assert!(own.contains("has no probes") || own.contains("eBPF"), "{own}");
}
