use super::message::*;
use super::*;

const LINK: LinkFacts = LinkFacts { mtu: 1500, speed_bps: 0 };

fn options_of(bytes: Vec<u8>) -> TcMessage {
    // `struct nlmsghdr`.
    TcMessage::parse(&bytes[16..]).unwrap()
}

/// A message like a request is read as the request was written.
#[test]
fn classes_are_read_as_they_are_written() {
    let check = |discipline: Discipline, class: Class| {
        let mut request = Request::change(libc::RTM_NEWTCLASS, 0, &header(7, handle_of(3), ROOT_CLASS, 0));
        add_kind(&mut request, kernel_name(&discipline));
        add_class_options(&mut request, &discipline, &class, LINK);
        let m = options_of(request.finish());
        assert_eq!((m.ifindex, queue_of(m.handle), &*m.kind), (7, Some(3), kernel_name(&discipline)));
        assert_eq!(m.class(&discipline).class, class);
    };
    let htb = Discipline::Htb { max_rate: 0 };
    let class = |min_rate, max_rate, burst| Class { min_rate, max_rate, burst, priority: 5 };
    check(htb, class(1500, 125_000_000, 1564));
    check(htb, class(125_000, 2_500_000, 125_000));
    // 100 Gb/s needs more than 32 bits.
    check(htb, class(12_500_000_000, 12_500_000_000, 8000));
    let hfsc = Discipline::Hfsc { max_rate: 0 };
    check(hfsc, Class { min_rate: 9, max_rate: 10, burst: 0, priority: 0 });
}

#[test]
fn handles_are_those_of_queues() {
    let numbers = [0, 1, 6, QUEUES_MAX - 1];
    numbers.into_iter().for_each(|queue| assert_eq!(queue_of(handle_of(queue)), Some(queue)));
    for other in [ROOT, ROOT_CLASS, 2 << 16 | 1, 0] {
        assert_eq!(queue_of(other), None, "{other:x}");
    }
}

#[test]
fn truncated_messages_are_harmless() {
    let mut request = Request::change(libc::RTM_NEWTCLASS, 0, &header(7, 1, 2, 0));
    let htb = Discipline::Htb { max_rate: 0 };
    add_kind(&mut request, "htb");
    add_class_options(&mut request, &htb, &Class::default(), LINK);
    let bytes = request.finish();
    for len in 16..bytes.len() {
        let m = TcMessage::parse(&bytes[16..len]);
        assert_eq!(m.is_some(), len >= 16 + 20);
        let _parsed = m.map(|m| m.class(&htb));
    }
}

#[test]
fn ticks_are_64_nanoseconds() {
    assert_eq!([ticks(1564, 1500), ticks(1500, 125_000_000), ticks(1, 0)], [16_291_666, 187, 0]);
    assert_eq!(ticks(u64::MAX, 1), u32::MAX);
}

/// Linux 6.18 sent the message, about the classes of a device.
#[test]
fn classes_of_the_kernel_are_read() {
    let bytes = include_bytes!("../../corpus/tc_messages/htb_classes");
    let found: Vec<Class> = classes_of(bytes).into_iter().map(|[_, htb]| htb).collect();
    let class = |min_rate, max_rate, burst, priority| Class { min_rate, max_rate, burst, priority };
    for wanted in [class(1500, 125_000_000, 1564, 0), class(125_000, 2_500_000, 125_000, 3)] {
        assert!(found.contains(&wanted), "{found:?}");
    }
    testkit::replay_corpus(
        concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/tc_messages"),
        crate::fuzz::tc_messages,
    );
}
