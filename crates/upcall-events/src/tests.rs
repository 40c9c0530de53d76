//! The codec: round trips, cuts, damage.

use proptest::prelude::*;

use crate::codec::{FRAME_BYTES_MAX, NAME_BYTES_MAX, PACKET_BYTES_MAX};
use crate::{
    CodecError, Decoder, Dropped, Event, HEADER_BYTES, MAGIC, Record, Sampled, Stage, VERSION, Why, Wrong,
    encode_header,
};

fn event() -> Event {
    Event {
        stage: Stage::Received,
        why: Why::Miss,
        time_ns: 1_234_567_890_123,
        upcall: 0x0123_4567_89ab_cdef,
        thread: 4711,
        cpu: 3,
        batch: 17,
        port: 2,
        packet_bytes: 98,
        error: 0,
        packet: vec![0xff; 64],
        key: Vec::new(),
    }
}

/// All kinds of records.
fn samples() -> Vec<Record> {
    vec![
        Record::Start { pid: 1, program: "sluiced 0.1.0".into(), source: "ring".into(), wall_offset_ns: 99 },
        Record::Port { number: 2, name: "veth2".into() },
        Record::Thread { thread: 4711, name: "handler1".into() },
        Record::Event(event()),
        Record::Lost { stage: Stage::Miss, events: 300 },
        Record::Overhead { events: 1, spent_ns: 250 },
        Record::PortGone { number: 2 },
        Record::End,
    ]
}

/// Records for listeners that ask for dropped packets.
fn of_drops() -> Vec<Record> {
    vec![
        Record::Dropped(Dropped {
            time_ns: 5,
            reason: "meter".into(),
            kernel: "OVS_DROP_METER".into(),
            port: 2,
            packet_bytes: 98,
            packet: vec![7; 64],
            key: vec![1; 8],
        }),
        Record::Unsampled { packets: 12 },
    ]
}

fn encoded(records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_header(&mut out);
    for record in records {
        record.encode(&mut out);
    }
    out
}

/// The decoded records, and the end.
fn decoded(bytes: &[u8]) -> (Vec<Record>, Result<(), CodecError>) {
    let mut decoder = Decoder::new();
    decoder.push(bytes);
    let mut records = Vec::new();
    loop {
        match decoder.next() {
            Ok(Some(record)) => records.push(record),
            Ok(None) => return (records, decoder.finish()),
            Err(error) => return (records, Err(error)),
        }
    }
}

#[test]
fn each_stage_and_reason_has_its_number_and_a_name_of_its_own() {
    let mut names = std::collections::HashSet::new();
    for stage in Stage::ALL {
        assert_eq!(Stage::from_number(stage as u8), Some(stage));
        assert!(names.insert(stage.name()));
    }
    assert_eq!((Stage::from_number(0), Stage::from_number(11)), (None, None));
    for why in [Why::Miss, Why::Action, Why::Unknown] {
        assert_eq!(Why::from_number(why as u8), Some(why));
    }
    assert_eq!(Why::from_number(0), None);
}

#[test]
fn an_event_takes_few_bytes() {
    let bytes = encoded(&[Record::Event(event())]);
    // Length 1, tag and stage 2, flags 1, time 6, id 8, thread 2, cpu 1, batch 1, port 1, length 1, and the packet.
    assert_eq!(bytes.len(), HEADER_BYTES + 24 + 1 + 64);
}

#[test]
fn a_stream_cut_anywhere_gives_what_came_before() {
    let records = [samples(), of_drops()].concat();
    let bytes = encoded(&records);
    assert_eq!(decoded(&bytes), (records.clone(), Ok(())));
    let mut ends = vec![HEADER_BYTES];
    ends.extend((1..=records.len()).map(|count| encoded(&records[..count]).len()));
    for cut in 0..bytes.len() {
        let whole = ends.iter().filter(|end| **end <= cut).count().saturating_sub(1);
        let (read, end) = decoded(&bytes[..cut]);
        assert_eq!(read, records[..whole], "cut at {cut}");
        let offset = if cut < HEADER_BYTES { 0 } else { ends[whole] as u64 };
        let torn = Err(CodecError { offset, wrong: Wrong::Torn });
        assert_eq!(end, if ends.contains(&cut) { Ok(()) } else { torn }, "cut at {cut}");
    }
}

#[test]
fn damage_is_reported_with_its_place() {
    let head = encoded(&[]);
    let with = |frame: &[u8]| [head.as_slice(), frame].concat();
    let mut newer = head.clone();
    newer[MAGIC.len()..].copy_from_slice(&(VERSION + 1).to_le_bytes());
    for (bytes, wrong) in [
        (b"\xd4\xc3\xb2\xa1".to_vec(), Wrong::Foreign),
        (newer, Wrong::Version(VERSION + 1)),
        (with(&[0]), Wrong::Length),
        (with(&[0xff, 0xff, 0x7f]), Wrong::Length),
        (with(&[0xff, 0xff, 0xff]), Wrong::Length),
        (with(&[1, 99]), Wrong::Tag(99)),
        (with(&[2, 8, 0]), Wrong::Long),
        (with(&[2, 3, 0x80]), Wrong::Short("port")),
        (with(&[7, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), Wrong::Field("port")),
        (
            with(&[12, 6, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]),
            Wrong::Field("number of lost events"),
        ),
        (with(&[3, 6, 11, 0]), Wrong::Field("stage")),
        (with(&[3, 5, 0x11, 0x80]), Wrong::Field("flags")),
        (with(&[3, 5, 0x41, 0]), Wrong::Field("reason")),
        (with(&[5, 4, 1, 2, 0xc3, 0x28]), Wrong::Field("thread name")),
        (with(&[5, 4, 1, 0x80, 2, 0]), Wrong::Field("thread name")),
    ] {
        let (records, end) = decoded(&bytes);
        assert_eq!(records, []);
        let error = end.expect_err("it is damaged");
        assert_eq!(error.wrong, wrong, "{bytes:x?}");
        let place = matches!(wrong, Wrong::Foreign | Wrong::Version(_));
        assert_eq!(error.offset, if place { 0 } else { HEADER_BYTES as u64 });
    }
    let (records, end) = decoded(&[encoded(&samples()[..2]), vec![0]].concat());
    assert_eq!(records, samples()[..2]);
    assert_eq!(end.unwrap_err().to_string(), "at byte 42: a frame of impossible length");
}

#[test]
fn an_error_stays_and_what_comes_after_it_is_not_kept() {
    let mut decoder = Decoder::new();
    decoder.push(b"GIF89a");
    let error = decoder.next().unwrap_err();
    decoder.push(&encoded(&samples()));
    assert_eq!((decoder.next(), decoder.finish()), (Err(error), Err(error)));
}

#[test]
fn what_is_too_long_is_cut_and_fits_a_frame() {
    let long = Event { packet: vec![1; 70_000], key: vec![2; 70_000], ..event() };
    let name = "\u{e4}".repeat(NAME_BYTES_MAX);
    let bytes = encoded(&[Record::Event(long), Record::Port { number: 1, name }]);
    assert!(bytes.len() < FRAME_BYTES_MAX);
    let (records, end) = decoded(&bytes);
    assert_eq!(end, Ok(()));
    let (Record::Event(event), Record::Port { name, .. }) = (&records[0], &records[1]) else { panic!() };
    assert_eq!((event.packet.len(), event.key.len()), (PACKET_BYTES_MAX, PACKET_BYTES_MAX));
    assert_eq!((name.len(), name.chars().count()), (254, 127));
}

fn any_event() -> impl Strategy<Value = Event> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u32>(), any::<u16>(), any::<u16>(), any::<u32>());
    let bytes = || proptest::collection::vec(any::<u8>(), 0..300);
    let rest = (0..10usize, 1..4u8, any::<u32>(), any::<u32>(), bytes(), bytes());
    (numbers, rest).prop_map(|((time_ns, upcall, thread, cpu, batch, port), rest)| {
        let (stage, why, packet_bytes, error, packet, key) = rest;
        let (stage, why) = (Stage::ALL[stage], Why::from_number(why).unwrap_or(Why::Unknown));
        Event { stage, why, time_ns, upcall, thread, cpu, batch, port, packet_bytes, error, packet, key }
    })
}

fn any_record() -> impl Strategy<Value = Record> {
    prop_oneof![
        (any::<u32>(), ".{0,40}", ".{0,9}", any::<u64>()).prop_map(
            |(pid, program, source, wall_offset_ns)| {
                Record::Start { pid, program, source, wall_offset_ns }
            }
        ),
        (any::<u32>(), ".{0,20}").prop_map(|(number, name)| Record::Port { number, name }),
        any::<u32>().prop_map(|number| Record::PortGone { number }),
        (any::<u32>(), ".{0,20}").prop_map(|(thread, name)| Record::Thread { thread, name }),
        any_event().prop_map(Record::Event),
        (0..10usize, any::<u64>()).prop_map(|(i, events)| Record::Lost { stage: Stage::ALL[i], events }),
        (any::<u64>(), any::<u64>()).prop_map(|(events, spent_ns)| Record::Overhead { events, spent_ns }),
        (any::<[u32; 2]>(), ".{0,20}", ".{0,20}", any::<Vec<u8>>()).prop_map(
            |([port, packet_bytes], reason, kernel, packet)| {
                let (time_ns, key) = (u64::from(port), packet.clone());
                Record::Dropped(Dropped { time_ns, reason, kernel, port, packet_bytes, packet, key })
            }
        ),
        any::<u64>().prop_map(|packets| Record::Unsampled { packets }),
        (any::<[u32; 4]>(), any::<[u8; 8]>(), any::<Vec<u8>>()).prop_map(
            |([group, probability, port, packet_bytes], cookie, packet)| {
                let (time_ns, cookie) = (u64::from(port), cookie.to_vec());
                Record::Sampled(Sampled { time_ns, group, probability, port, packet_bytes, cookie, packet })
            }
        ),
        any::<u64>().prop_map(|packets| Record::SamplesLost { packets }),
        Just(Record::End),
    ]
}

proptest! {
    #[test]
    fn records_come_back_as_they_were(records in proptest::collection::vec(any_record(), 0..12), piece in 1..200usize) {
        let bytes = encoded(&records);
        prop_assert_eq!(decoded(&bytes), (records.clone(), Ok(())));
        let (mut decoder, mut read) = (Decoder::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            decoder.push(piece);
            while let Some(record) = decoder.next().unwrap() {
                read.push(record);
            }
        }
        prop_assert_eq!(decoder.offset(), bytes.len() as u64);
        prop_assert_eq!(read, records);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        crate::fuzz::stream(&bytes);
        crate::fuzz::stream(&[encoded(&[]), bytes].concat());
    }
}

/// The corpus files equal the codec's present output; `UPDATE_CORPUS=1` rewrites them.
#[test]
fn corpus_of_stream() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/stream");
    let whole = encoded(&samples());
    let files = [
        ("all_records", whole.clone()),
        ("torn", whole[..whole.len() - 5].to_vec()),
        ("zeros_after_crash", [whole.as_slice(), &[0; 16]].concat()),
        ("foreign", b"\xd4\xc3\xb2\xa1\x02\0\x04\0".to_vec()),
    ];
    for (name, bytes) in &files {
        let path = format!("{folder}/{name}");
        if std::env::var_os("UPDATE_CORPUS").is_some() {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(&path, bytes).unwrap();
        }
        assert_eq!(
            std::fs::read(&path).unwrap(),
            *bytes,
            "{name}: the format changed, then so must its version"
        );
    }
    testkit::replay_corpus(folder, crate::fuzz::stream);
}
