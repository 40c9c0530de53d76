use super::*;

#[test]
fn packets_beyond_the_limits_are_dropped() {
    let (policer, mut pool) = (PortPolicer::default(), PacketPool::default());
    let mut batch = PacketBatch::new();
    let mut police = |policer: &PortPolicer, from, now_us| {
        batch.free_into(&mut pool);
        (0..8).for_each(|_| batch.push(Packet::from_slice(&[0; 125])));
        let dropped = policer.police(&mut batch, from, &mut pool, now_us);
        assert_eq!(batch.len() as u64, 8 - dropped);
        dropped
    };
    assert!(!policer.limits());
    assert_eq!(police(&policer, 0, 5), 0);
    // Four packets at once, and one a millisecond.
    policer.set(Policing { kbps: 1000, burst_kbits: 4, ..Policing::default() }, 10);
    assert!(policer.limits());
    assert_eq!([police(&policer, 0, 10), police(&policer, 0, 3010), police(&policer, 0, 3010)], [4, 5, 8]);
    // Those before the place are another port's.
    assert_eq!(police(&policer, 6, 3010), 2);
    policer.set(Policing::default(), 20);
    assert_eq!(police(&policer, 0, 30), 0);
}
