//! Tests against the generic netlink controller, which every kernel has.

use super::*;
use crate::genl::{ATTRIBUTES, CONTROLLER, VERSION, command, family};
use crate::message::AttributeNames;

/// `CTRL_ATTR_FAMILY_NAME`.
const NAME: u16 = 2;

fn ask(name: &str, again: bool) -> NlRequest {
    let names: AttributeNames = ATTRIBUTES;
    let what = format!("find {name}");
    let asked = Asked { repeatable: again, ..Asked::again(what, names, 4096) };
    let mut request = MessageWriter::new(CONTROLLER, [command::GET_FAMILY, VERSION], 0, &[], asked);
    request.attrs.text(NAME, name);
    request.finish().unwrap()
}

#[test]
fn the_controller_knows_itself() {
    let mut socket = Socket::open().unwrap();
    assert!(socket.pid() != 0);
    let found = family(&mut socket, "nlctrl").unwrap();
    assert_eq!((found.name.as_str(), found.id), ("nlctrl", CONTROLLER));
    assert!(found.group("notify").is_some() && found.group("nonsense").is_none());
    let e = family(&mut socket, "sl_nonsense").unwrap_err();
    assert!(e.is_no_module() && e.to_string().contains("sl_nonsense"), "{e}");
}

#[test]
fn answers_stand_in_the_order_of_their_requests() {
    let mut socket = Socket::open().unwrap();
    let requests: Vec<NlRequest> =
        (0..500).map(|n| ask(if n % 7 == 3 { "sl_nonsense" } else { "nlctrl" }, true)).collect();
    let mut replies = vec![0; requests.len()];
    let results = socket.transact(&requests, &mut |n, body| {
        assert!(body.len() > 40);
        replies[n] += 1;
    });
    assert_eq!(results.len(), requests.len());
    for (n, result) in results.into_iter().enumerate() {
        let missing = n % 7 == 3;
        assert_eq!(result.is_err_and(|e| e.is_not_found()), missing, "{n}");
        assert_eq!(replies[n], u32::from(!missing), "{n}");
    }
    assert!(socket.transact(&[], &mut |_, _| ()).is_empty());
}

#[test]
fn the_kernel_says_which_attribute_it_does_not_like() {
    let mut socket = Socket::open().unwrap();
    // Names have 15 bytes at most.
    let e = socket.request(ask("a-name-that-is-too-long", true), &mut |_| ()).unwrap_err();
    let Error::Refused(refusal) = &e else { panic!("{e}") };
    assert_eq!(refusal.attribute.as_deref(), Some("CTRL_ATTR_FAMILY_NAME"), "{e}");
    assert!(refusal.message.is_some(), "{e}");
}

#[test]
fn lost_answers_are_never_lost_silently() {
    let mut socket = Socket::open_io(Protocol::Generic, 4096).unwrap();
    let requests: Vec<NlRequest> = (0..100).map(|n| ask("nlctrl", n % 2 == 0)).collect();
    // As if all of them would fit.
    let mut results = Vec::new();
    results.resize_with(requests.len(), || None);
    let mut replies = 0;
    socket.exchange(&requests, 0..100, &mut results, &mut |_, _| replies += 1);
    let lost = results.iter().filter(|r| matches!(r, Some(Err(Error::Lost { .. })))).count();
    let good = results.iter().filter(|r| matches!(r, Some(Ok(())))).count();
    assert!(lost > 0 && good > 0 && lost + good == 100, "{lost} lost, {good} good");
    let e = results.into_iter().flatten().find_map(Result::err).unwrap();
    assert_eq!(e.to_string(), "cannot find nlctrl: the reply was lost (receive buffer full)");
    // The socket remains usable, and by itself never has too many in flight.
    let results = socket.transact(&requests, &mut |_, _| ());
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}

#[test]
fn what_was_lost_is_asked_again_where_that_does_no_harm() {
    let mut socket = Socket::open_io(Protocol::Generic, 4096).unwrap();
    // A miscount: the buffer size is set too high.
    socket.receive_buffer_bytes = 64 << 20;
    let requests: Vec<NlRequest> = (0..100).map(|n| ask("nlctrl", n % 2 == 0)).collect();
    let mut replies = vec![0; 100];
    let results = socket.transact(&requests, &mut |n, _| replies[n] += 1);
    let mut lost = 0;
    for (n, result) in results.iter().enumerate() {
        match result {
            Ok(()) => assert!(replies[n] > 0, "{n}"),
            Err(Error::Lost { .. }) => {
                assert_eq!(n % 2, 1, "request {n} could have been asked again");
                lost += 1;
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert!(lost > 0);
}

#[test]
fn a_dump_is_read_message_by_message() {
    let mut socket = Socket::open().unwrap();
    let asked = Asked::again("list families", ATTRIBUTES, 0);
    let all = MessageWriter::new(CONTROLLER, [command::GET_FAMILY, VERSION], 0, &[], asked).finish().unwrap();
    let mut dump = socket.start_dump(&all).unwrap();
    let mut names = Vec::new();
    while let Some(body) = dump.next(&mut socket) {
        names.push(crate::genl::Family::parse(&body.unwrap()[4..]).unwrap().name);
    }
    assert!(names.iter().any(|n| n == "nlctrl"), "{names:?}");
    assert!(dump.is_complete() && !dump.interrupted());
    assert!(dump.next(&mut socket).is_none());
    // The socket is usable again.
    assert!(family(&mut socket, "nlctrl").is_ok());
}

#[test]
fn a_dump_that_is_refused_ends_with_an_error() {
    let mut socket = Socket::open().unwrap();
    let asked = Asked::again("list nothing", ATTRIBUTES, 0);
    // An unknown command.
    let none = MessageWriter::new(CONTROLLER, [200, VERSION], 0, &[], asked).finish().unwrap();
    let mut dump = socket.start_dump(&none).unwrap();
    let e = dump.next(&mut socket).unwrap().unwrap_err();
    assert!(e.is_unsupported() && e.to_string().starts_with("cannot list nothing: "), "{e}");
    assert!(dump.next(&mut socket).is_none() && dump.is_complete());
}

#[test]
fn what_is_not_asked_for_is_heard() {
    let mut socket = Socket::open().unwrap();
    assert!(socket.heard("listen").unwrap().is_none());
    let group = family(&mut socket, "nlctrl").unwrap().group("notify").unwrap();
    socket.join(group).unwrap();
    assert!(socket.join(u32::MAX).is_err());
}
