//! `pcap` and `null` ports, and capture files in every layout.

use std::os::fd::AsRawFd;

use packet::Packet;

use super::*;
use crate::port::Port;

struct Dir(PathBuf);

impl Dir {
    fn new(test: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("sluice-netdev-pcap-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A handmade file: byte order, magic number, link type, and frames with their lengths on the wire.
fn capture(big: bool, magic: u32, link: u32, frames: &[(&[u8], u32)]) -> Vec<u8> {
    let word = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    let half = |n: u16| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    let mut f = word(magic).to_vec();
    f.extend([half(2), half(4)].concat());
    f.extend([word(0), word(0), word(65535), word(link)].concat());
    for (bytes, wire) in frames {
        f.extend([word(1_600_000_000), word(999), word(bytes.len() as u32), word(*wire)].concat());
        f.extend(*bytes);
    }
    f
}

fn plain(frames: &[&[u8]]) -> Vec<u8> {
    let frames: Vec<_> = frames.iter().map(|f| (*f, f.len() as u32)).collect();
    capture(false, 0xa1b2_c3d4, 1, &frames)
}

fn rx(path: &Path, infinite_rx: bool) -> io::Result<Port> {
    Port::open_pcap("c0", &PcapPort { rx_pcap: Some(path.to_owned()), tx_pcap: None, infinite_rx })
}

fn readable(port: &Port) -> bool {
    let mut fd = libc::pollfd { fd: port.rx[0].fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd, alive through the call.
    unsafe { libc::poll(&mut fd, 1, 0) == 1 }
}

/// At most `most` frames in one call.
fn recv(port: &mut Port, pool: &mut PacketPool, most: usize) -> io::Result<Vec<Vec<u8>>> {
    let mut batch = PacketBatch::new();
    let got = port.rx[0].recv(pool, &mut batch, most)?;
    assert_eq!(got, batch.len());
    let frames = batch.packets().iter().map(|p| p.data().to_vec()).collect();
    batch.free_into(pool);
    Ok(frames)
}

#[test]
fn files_of_every_layout_are_played_to_their_end() {
    let dir = Dir::new("layouts");
    let (a, b): (Vec<u8>, Vec<u8>) = ((0..60).collect(), (0..1514).map(|i| i as u8).collect());
    for (big, magic) in [false, true].into_iter().flat_map(|b| [(b, 0xa1b2_c3d4), (b, 0xa1b2_3c4d)]) {
        let path = dir.file("f", &capture(big, magic, 1, &[(&a, 60), (&a[..13], 13), (&b, 1514)]));
        for infinite in [false, true] {
            let (mut port, mut pool) = (rx(&path, infinite).unwrap(), PacketPool::new());
            assert!(readable(&port));
            assert_eq!(recv(&mut port, &mut pool, 1).unwrap(), std::slice::from_ref(&a));
            assert_eq!(recv(&mut port, &mut pool, 1).unwrap(), std::slice::from_ref(&b));
            assert_eq!(port.rx[0].counters().malformed, 1);
            let more = recv(&mut port, &mut pool, 32).unwrap();
            assert_eq!((more.len(), readable(&port)), if infinite { (32, true) } else { (0, false) });
        }
    }
}

#[test]
fn check_sequences_are_cut_off() {
    let dir = Dir::new("fcs");
    // Four bytes of it, present, lost by truncation at capture, and partly lost.
    let frames = [(&[7; 64][..], 64), (&[8; 40][..], 64), (&[9; 62][..], 64)];
    let path = dir.file("f", &capture(false, 0xa1b2_c3d4, 0x2400_0001, &frames));
    for infinite in [false, true] {
        let (mut port, mut pool) = (rx(&path, infinite).unwrap(), PacketPool::new());
        let lengths: Vec<_> = recv(&mut port, &mut pool, 3).unwrap().iter().map(Vec::len).collect();
        assert_eq!(lengths, [60, 40, 60]);
    }
}

#[test]
fn frames_come_again_whole_and_in_order() {
    let dir = Dir::new("again");
    let frames: Vec<Vec<u8>> = [14, 63, 64, 65, 1514, 2112, 2113, 9014, 65557, 128]
        .iter()
        .map(|n| (0..*n).map(|i| i as u8 ^ *n as u8).collect())
        .collect();
    let path = dir.file("f", &plain(&frames.iter().map(Vec::as_slice).collect::<Vec<_>>()));
    let (mut port, mut pool) = (rx(&path, true).unwrap(), PacketPool::new());
    let mut got = Vec::new();
    for most in [3, 32, 1000, 7, 0, 26] {
        let some = recv(&mut port, &mut pool, most).unwrap();
        assert_eq!(some.len(), most.min(packet::BURST_MAX_PACKETS));
        got.extend(some);
    }
    assert_eq!(got.len(), 324);
    assert!(got.iter().zip(frames.iter().cycle()).all(|(g, f)| g == f));
    let (mut once, mut pool) = (rx(&path, false).unwrap(), PacketPool::new());
    assert_eq!(recv(&mut once, &mut pool, 32).unwrap(), frames);
}

#[test]
fn what_cannot_be_played_is_refused_in_words() {
    let dir = Dir::new("refused");
    let cut = plain(&[&[1; 60]]);
    let long = capture(false, 0xa1b2_c3d4, 1, &[]);
    let mut long_record = long.clone();
    long_record.extend([[0; 8], [0xff; 8]].concat());
    let mut version = long.clone();
    version[4] = 3;
    let cases: [(&[u8], &str, bool); 9] = [
        (b"", "is empty", true),
        (&long[..20], "ends within its header", true),
        (&[0x0a, 0x0d, 0x0d, 0x0a, 0x1c, 0, 0, 0], "pcapng", true),
        (b"GIF89a..................", "begins with 0x47494638", true),
        (&version, "version 3.4", true),
        (&capture(true, 0xa1b2_c3d4, 113, &[]), "link type 113", true),
        (&cut[..50], "ends within frame 1", false),
        (&cut[..30], "ends within frame 1", false),
        (&long_record, "4294967295 bytes", false),
    ];
    for (content, why, at_once) in cases {
        let path = dir.file("f", content);
        let check = |e: io::Error| {
            assert_eq!(e.kind(), io::ErrorKind::InvalidData);
            let e = e.to_string();
            assert!(e.contains(why) && e.contains(path.to_str().unwrap()), "{e}");
        };
        check(rx(&path, true).err().unwrap());
        if at_once {
            check(rx(&path, false).err().unwrap());
            continue;
        }
        // Detected only when reached: reported once, then the end.
        let (mut port, mut pool) = (rx(&path, false).unwrap(), PacketPool::new());
        check(recv(&mut port, &mut pool, 32).err().unwrap());
        assert_eq!((recv(&mut port, &mut pool, 32).unwrap().len(), readable(&port)), (0, false));
    }
    let nothing = dir.file("f", &long);
    assert!(rx(&nothing, true).err().unwrap().to_string().contains("no frame"));
    assert_eq!(recv(&mut rx(&nothing, false).unwrap(), &mut PacketPool::new(), 32).unwrap().len(), 0);
    let missing = rx(&dir.0.join("missing"), false).err().unwrap();
    assert!(
        missing.kind() == io::ErrorKind::NotFound && missing.to_string().contains("missing"),
        "{missing}"
    );
    assert!(rx(&dir.0, false).err().unwrap().to_string().contains("no regular file"));
    let same =
        PcapPort { rx_pcap: Some(nothing.clone()), tx_pcap: Some(nothing.clone()), infinite_rx: false };
    for options in [same, PcapPort::default(), PcapPort { infinite_rx: true, ..PcapPort::default() }] {
        let error = Port::open_pcap("c0", &options).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    }
    assert_eq!(std::fs::read(nothing).unwrap(), long);
}

#[test]
fn frames_before_a_broken_one_are_received() {
    let dir = Dir::new("broken");
    let mut content = plain(&[&[1; 60], &[2; 60], &[3; 60]]);
    content.truncate(content.len() - 1);
    let (mut port, mut pool) = (rx(&dir.file("f", &content), false).unwrap(), PacketPool::new());
    assert_eq!(recv(&mut port, &mut pool, 32).unwrap(), [[1; 60], [2; 60]]);
    assert!(readable(&port), "an error waits");
    assert!(recv(&mut port, &mut pool, 32).is_err());
    assert!(recv(&mut port, &mut pool, 32).unwrap().is_empty() && !readable(&port));
}

#[test]
fn what_is_sent_can_be_played() {
    let dir = Dir::new("sent");
    let path = dir.file("f", b"former content");
    let options = PcapPort { tx_pcap: Some(path.clone()), ..PcapPort::default() };
    let port = Port::open_pcap("c0", &options).unwrap();
    assert!(port.rx.is_empty());
    let (mut one, mut two, mut pool) = (port.tx().unwrap(), port.tx().unwrap(), PacketPool::new());
    let mut expected = Vec::new();
    for i in 0..10u8 {
        let frames = [vec![i; 60], vec![100 + i; 5000]];
        let mut batch: PacketBatch = frames.iter().map(|f| Packet::from_slice(f)).collect();
        let report = if i % 2 == 0 { &mut one } else { &mut two }.send(&mut batch, &mut pool);
        assert_eq!((report.sent_packets, report.sent_bytes, batch.len()), (2, 5060, 0));
        expected.extend(frames);
    }
    let mut again = rx(&path, false).unwrap();
    assert_eq!(recv(&mut again, &mut pool, 32).unwrap(), expected);
    // Nothing to write causes no write, and a device that accepts nothing causes a drop.
    assert_eq!(one.send(&mut PacketBatch::new(), &mut pool), TxReport::default());
    let full = Port::open_pcap("c0", &PcapPort { tx_pcap: Some("/dev/full".into()), ..PcapPort::default() });
    assert!(full.err().unwrap().to_string().contains("/dev/full"));
}

#[test]
fn a_null_port_swallows_and_counts() {
    let port = Port::open_null("n0");
    assert!(port.rx.is_empty() && port.exists().is_none() && port.ifindex() == 0);
    let (mut tx, mut pool) = (port.tx().unwrap(), PacketPool::new());
    let mut batch: PacketBatch = [60, 20_000].map(|n| Packet::from_slice(&vec![1; n])).into_iter().collect();
    let report = tx.send(&mut batch, &mut pool);
    assert_eq!((report.sent_packets, report.sent_bytes, report.dropped_packets()), (2, 20_060, 0));
    assert!(batch.is_empty());
}

#[test]
fn files_with_any_byte_changed_do_no_harm() {
    let dir = Dir::new("changed");
    let whole = plain(&[&[1; 60], &[2; 20], &[3; 100]]);
    for at in 0..whole.len() {
        for value in [1, 0xff] {
            let mut changed = whole.clone();
            changed[at] = value;
            let path = dir.file("f", &changed);
            // An endless replay repeats the frames of a single one; neither yields more than the file has.
            let mut once = Vec::new();
            let mut failed = true;
            if let Ok(mut port) = rx(&path, false) {
                let mut pool = PacketPool::new();
                once = recv(&mut port, &mut pool, 32).unwrap_or_default();
                failed = recv(&mut port, &mut pool, 32).is_err();
            }
            assert!(once.len() <= 3 && once.iter().map(Vec::len).sum::<usize>() <= whole.len());
            match rx(&path, true) {
                Ok(mut port) => {
                    let again = recv(&mut port, &mut PacketPool::new(), once.len()).unwrap();
                    assert_eq!((again, failed), (once, false), "byte {at} = {value}");
                }
                Err(e) => assert!(failed || once.is_empty(), "byte {at} = {value}: {e}"),
            }
        }
    }
}
