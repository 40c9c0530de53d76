use super::*;

fn file(frames: &[(&str, &[u8])]) -> Vec<u8> {
    let frames = frames.iter().flat_map(|(name, slice)| frame(name, slice));
    head("boot").into_bytes().into_iter().chain(frames).collect()
}

/// The slices of a file of this start of the machine, and how they end.
fn read(bytes: &[u8]) -> (Vec<(String, Vec<u8>)>, Option<String>) {
    let mut all = Vec::new();
    let mut slices = match Slices::begin(bytes, "boot") {
        Ok(Some(slices)) => slices,
        Ok(None) => return (all, Some("another start".into())),
        Err(e) => return (all, Some(e.to_string())),
    };
    loop {
        match slices.next() {
            Ok(Some(slice)) => all.push((slice.datapath, slice.bytes)),
            Ok(None) => return (all, None),
            Err(e) => return (all, Some(e.to_string())),
        }
    }
}

#[test]
fn frames_are_read_as_written() {
    let long = vec![7; 300_000];
    let (all, end) = read(&file(&[("netdev@a", b"one"), ("netdev@b", b""), ("netdev@a", &long)]));
    let wanted = [("netdev@a", b"one".to_vec()), ("netdev@b", Vec::new()), ("netdev@a", long)];
    assert_eq!((all, end), (wanted.map(|(name, bytes)| (name.to_string(), bytes)).to_vec(), None));
}

/// A truncated frame ends the file; any other fault is an error.
#[test]
fn faults_end_the_file() {
    let whole = file(&[("netdev@a", b"one"), ("netdev@a", b"two")]);
    let head_bytes = head("boot").len();
    let first_bytes = HEAD_BYTES + 8 + 3 + TAIL_BYTES;
    for end in head_bytes..whole.len() {
        let (all, why) = read(&whole[..end]);
        assert_eq!((all.len(), why), (usize::from(end >= head_bytes + first_bytes), None), "{end}");
    }
    for at in head_bytes..head_bytes + first_bytes {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        let (all, why) = read(&bytes);
        // A longer slice than the file has ends it.
        assert!(all.is_empty() && (why.is_some() || (at - head_bytes) / 4 < 3), "{at}: {all:?}");
    }
    assert_eq!(read(&file(&[])[1..]).1.as_deref(), Some("its first line is unknown"));
    let other = head("boot").replace("\t1\t", "\t2\t");
    assert_eq!(read(other.as_bytes()).1.as_deref(), Some("it has another version"));
    assert_eq!(read(head("other").as_bytes()).1.as_deref(), Some("another start"));
}

/// Passes of a slice each, with its bytes.
struct Passes(Arc<AtomicUsize>, bool);

impl CtExport for Passes {
    fn next(&mut self, _: usize) -> Option<Vec<u8>> {
        self.1 = !self.1;
        self.1.then(|| vec![7; self.0.load(Ordering::Relaxed)])
    }

    fn begin_anew(&mut self) {
        self.1 = false;
    }
}

/// A writer in a folder, with the bytes of its slices.
fn writer(dir: &Path, bytes_max: u64) -> (Writer, Arc<AtomicUsize>) {
    let bytes = Arc::new(AtomicUsize::new(0));
    let exports: Exports = vec![("netdev@a".to_string(), Box::new(Passes(bytes.clone(), false)))];
    let writer = Writer {
        files: Files::of(dir, "x"),
        boot: "boot".to_string(),
        exports,
        file: None,
        all_bytes: 0,
        changes_bytes: 0,
        bytes_max,
        readers: Arc::default(),
        stops: Arc::default(),
    };
    (writer, bytes)
}

#[test]
fn connections_beyond_the_room_are_not_written() {
    let dir = testkit::RunDir::new("kept").unwrap();
    let frame_bytes = |slice: u64| HEAD_BYTES as u64 + 8 + slice + TAIL_BYTES as u64;
    let (mut writer, slice) = writer(&dir.join(""), frame_bytes(3000));
    let file = || std::fs::read(dir.join("x.connections")).map(|bytes| read(&bytes).0.len()).ok();
    let mut write = |bytes: usize| {
        slice.store(bytes, Ordering::Relaxed);
        let written = writer.write().map_err(|e| e.to_string());
        (written.is_ok(), writer.all_bytes, writer.changes_bytes)
    };
    let of = |slice| frame_bytes(slice);
    assert_eq!((write(1000), file()), ((true, of(1000), 0), Some(1)));
    assert_eq!((write(1000), file()), ((true, of(1000), of(1000)), Some(2)));
    // Changes have no more room, all connections have.
    assert_eq!((write(1001), file()), ((true, of(1001), 0), Some(1)));
    assert_eq!((write(3000), file()), ((true, of(3000), 0), Some(1)));
    assert!(!write(3001).0);
    assert_eq!(write(10), (true, of(10), 0));
}

#[test]
fn a_stop_leaves_the_file_as_it_is() {
    let dir = testkit::RunDir::new("kept").unwrap();
    let (mut writer, slice) = writer(&dir.join(""), u64::MAX);
    slice.store(100, Ordering::Relaxed);
    writer.write().unwrap();
    writer.file = None;
    writer.stops.store(true, Ordering::Relaxed);
    writer.write().unwrap();
    assert_eq!(read(&std::fs::read(dir.join("x.connections")).unwrap()).0.len(), 1);
    assert!(!dir.join("x.connections.new").exists());
}
