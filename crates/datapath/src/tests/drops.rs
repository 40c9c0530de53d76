//! Samples of dropped packets.

use super::frames::tcp;
use super::*;
use dpif::DropSampling;
use dpif::actions::DropAction;

fn sampling(per_second: u32) -> Option<DropSampling> {
    Some(DropSampling { packet_bytes: 20, per_second })
}

/// Drops of port 1 by rules, and of port 2 by a missing port.
fn rig() -> (Rig, Vec<u8>) {
    let mut rig = Rig::new();
    let frame = tcp(1000, 80);
    rig.flow(1, &frame, least_mask(), vec![DpAction::Drop(DropAction(XlateDrop::VlanNotAllowed))]);
    rig.flow(2, &frame, least_mask(), vec![out(9)]);
    (rig, frame)
}

#[test]
fn a_flood_of_one_cause_leaves_room_for_others() {
    let (mut rig, frame) = rig();
    rig.receive(1, &[frame.clone(), frame.clone()]);
    assert!(!rig.pmd.samples_drops(), "nobody listens");
    rig.pmd.sample_drops(sampling(3));
    let vlan = DropCause::Xlate(XlateDrop::VlanNotAllowed);
    let no_port = DropCause::Datapath(DropReason::NoPort);
    let take = |rig: &mut Rig| {
        let (samples, unsampled) = rig.pmd.take_drops(rig.now_us);
        (samples.iter().map(|s| (s.cause, s.port.0)).collect::<Vec<_>>(), unsampled)
    };
    for _ in 0..2 {
        assert_eq!(take(&mut rig), (vec![], 0));
        rig.receive(1, &vec![frame.clone(); 32]);
        rig.receive(2, std::slice::from_ref(&frame));
        assert_eq!(take(&mut rig), (vec![(vlan, 1), (vlan, 1), (vlan, 1), (no_port, 2)], 29));
        // The budget of this second is over.
        rig.receive(1, std::slice::from_ref(&frame));
        assert_eq!(take(&mut rig), (vec![], 1));
        rig.now_us += 1_000_000;
    }
    rig.pmd.sample_drops(None);
    rig.receive(1, &[frame]);
    assert_eq!((take(&mut rig), rig.pmd.samples_drops()), ((vec![], 0), false));
    assert_eq!(rig.drops(DropReason::Explicit), 2 + 2 * 33 + 1);
}

#[test]
fn samples_wait_within_a_bound_and_have_what_explains_them() {
    let (mut rig, frame) = rig();
    rig.pmd.sample_drops(sampling(100_000));
    (0..20).for_each(|_| rig.receive(1, &vec![frame.clone(); 32]));
    let (samples, unsampled) = rig.pmd.take_drops(rig.now_us);
    assert_eq!((samples.len(), unsampled), (256, 640 - 256));
    let sample = &samples[0];
    assert_eq!((sample.bytes, &sample.packet[..]), (frame.len(), &frame[..20]));
    assert_eq!(sample.key.as_deref(), Some(&key_of(1, &frame)));
    // Too short for a key.
    rig.receive(1, &[vec![1; 5]]);
    let (samples, _) = rig.pmd.take_drops(rig.now_us);
    assert_eq!((samples[0].cause, samples[0].bytes), (DropCause::Datapath(DropReason::Runt), 5));
    assert!(samples[0].key.is_none());
}
