//! Options and bounds; the rest is tested against the kernel.

use super::*;

#[test]
fn modes_have_the_names_of_the_option() {
    for (mode, name) in XdpMode::ALL {
        assert_eq!((name.parse(), mode.to_string().as_str()), (Ok(mode), name));
    }
    let error = "skb".parse::<XdpMode>().unwrap_err().to_string();
    assert!(error.contains("\"skb\"") && error.contains("native-with-zerocopy"), "{error}");
    assert_eq!(AfxdpOptions::default().mode.name(), "best-effort");
}

#[test]
fn memory_is_bounded() {
    assert_eq!([1, 8, 9, 64].map(entries_per_queue), [1024, 1024, 512, 128]);
    for count in 1..=MAX_RX_QUEUES {
        assert!(entries_per_queue(count) * count as u32 <= MAX_RING_ENTRIES);
    }
}
