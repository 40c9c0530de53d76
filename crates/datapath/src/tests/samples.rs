//! Packets sampled by `psample`.

use super::frames::tcp;
use super::*;
use crate::samples::WAITING_MAX;
use dpif::SampledPacket;
use dpif::actions::{Psample, PushVlan, Sample};

fn psample(group: u32) -> DpAction {
    DpAction::Psample(Psample { group, cookie: [1, 2].into() })
}

fn half(actions: Vec<DpAction>) -> DpAction {
    DpAction::Sample(Sample { probability: u32::MAX / 2, actions })
}

#[test]
fn a_reader_gets_each_sampled_packet_as_it_is_at_its_action() {
    for group in [false, true] {
        let mut rig = Rig::with(|c| c.tuning.group = group);
        let frame = tcp(1000, 80);
        let tag = DpAction::PushVlan(PushVlan { tpid: 0x8100, tci: 0x1005 });
        rig.flow(1, &frame, least_mask(), vec![psample(3), out(2), tag, psample(4)]);
        // Without a reader packets are forwarded and nothing is kept.
        rig.receive(1, std::slice::from_ref(&frame));
        assert_eq!(rig.pmd.take_samples(), (vec![], 0));
        rig.pmd.sample_locally(Some(14));
        rig.receive(1, &[frame.clone(), frame.clone()]);
        let (samples, lost) = rig.pmd.take_samples();
        let mut groups: Vec<(u32, usize)> = samples.iter().map(|s| (s.group, s.bytes)).collect();
        groups.sort_unstable();
        let bytes = frame.len();
        assert_eq!((groups, lost), (vec![(3, bytes), (3, bytes), (4, bytes + 4), (4, bytes + 4)], 0));
        let SampledPacket { cookie, probability, in_port, packet, .. } = &samples[0];
        assert_eq!((&cookie[..], *probability, *in_port), (&[1, 2][..], u32::MAX, DpPort(1)));
        assert_eq!(packet[..], frame[..14]);
        assert_eq!(rig.sent().len(), 3);
        assert_eq!(rig.drops(DropReason::Explicit), 0, "a packet that is only sampled is no drop");
        rig.pmd.sample_locally(None);
        assert!(!rig.pmd.samples_locally());
    }
}

#[test]
fn samples_beyond_the_bound_are_counted_and_no_packet_is_lost() {
    let mut rig = Rig::new();
    let frame = tcp(1000, 80);
    rig.flow(1, &frame, least_mask(), vec![psample(1), out(2)]);
    rig.pmd.sample_locally(Some(0));
    let frames = WAITING_MAX + 64;
    (0..frames / 32).for_each(|_| rig.receive(1, &vec![frame.clone(); 32]));
    let (samples, lost) = rig.pmd.take_samples();
    assert_eq!((samples.len(), lost), (WAITING_MAX, 64));
    assert_eq!(rig.sent().len(), frames);
}

#[test]
fn a_sample_has_the_probability_of_its_list() {
    for group in [false, true] {
        let mut rig = Rig::with(|c| c.tuning.group = group);
        let frame = tcp(1000, 80);
        rig.flow(1, &frame, least_mask(), vec![half(vec![psample(1)]), psample(2), out(2)]);
        rig.pmd.sample_locally(Some(64));
        (0..40).for_each(|_| rig.receive(1, std::slice::from_ref(&frame)));
        let (samples, _) = rig.pmd.take_samples();
        let of = |group: u32, probability: u32| {
            samples.iter().filter(|s| s.group == group && s.probability == probability).count()
        };
        assert_eq!((of(2, u32::MAX), of(1, u32::MAX), of(2, u32::MAX / 2)), (40, 0, 0));
        assert!((5..36).contains(&of(1, u32::MAX / 2)), "{}", samples.len());
        assert_eq!(rig.sent().len(), 40);
    }
}
