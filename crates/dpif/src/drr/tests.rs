use super::*;

#[test]
fn a_long_queue_does_not_keep_the_others_waiting() {
    let mut queues: Vec<VecDeque<u32>> =
        vec![(0..1000).collect(), (0..3).collect(), VecDeque::new(), (0..20).collect()];
    let mut drr = DeficitRoundRobin::default();
    (0..4).for_each(|i| drr.enter(i));
    let mut served = [0; 4];
    for _ in 0..2 {
        let taken = drr.take(32, |i| Some((*i, queues[*i].pop_front()?)), |_| None);
        assert_eq!(taken.len(), 32);
        taken.iter().for_each(|(i, _)| served[*i] += 1);
    }
    assert_eq!(served, [41, 3, 0, 20]);
    // Empty queues are not polled again.
    let mut asked = Vec::new();
    let mut ask = |i: &usize| {
        asked.push(*i);
        None::<u32>
    };
    assert!(drr.take(1, &mut ask, |_| None).is_empty() && drr.take(1, &mut ask, |_| None).is_empty());
    assert_eq!(asked, [0]);
}

#[test]
fn service_goes_on_where_it_stopped_and_is_in_order() {
    let mut queues: Vec<VecDeque<u32>> = vec![(0..100).collect(), (0..100).collect(), (0..100).collect()];
    let mut drr = DeficitRoundRobin::default();
    assert!(drr.take(5, |_: &usize| Some(1), |_| None).is_empty());
    (0..3).for_each(|i| drr.enter(i));
    let mut order: Vec<(usize, u32)> = Vec::new();
    for _ in 0..10 {
        order.extend(drr.take(5, |i| Some((*i, queues[*i].pop_front()?)), |_| None));
    }
    for queue in 0..3 {
        let own: Vec<u32> = order.iter().filter(|(i, _)| *i == queue).map(|(_, n)| *n).collect();
        assert!((16..=18).contains(&own.len()) && own.windows(2).all(|w| w[0] + 1 == w[1]), "{own:?}");
    }
}

#[test]
fn who_asks_for_little_comes_first_once_a_round() {
    let mut drr = DeficitRoundRobin::default();
    let flooding = 0..10;
    flooding.clone().for_each(|i| drr.enter(i));
    let all = drr.take(10 * QUANTUM, |i| Some(*i), |_| None);
    assert_eq!(all.len(), 10 * QUANTUM);
    // A queue with one upcall is served next.
    let one = std::cell::Cell::new(true);
    let mut pop = |i: &i32| if *i == 99 { one.replace(false).then_some(99) } else { Some(*i) };
    drr.enter(99);
    assert_eq!(drr.take(2, &mut pop, |_| None), [99, 0]);
    assert_eq!(drr.ahead(), 1);
    // One more upcall: it has not left, so it waits for its turn, after all others.
    one.set(true);
    let round = drr.take(10 * QUANTUM, &mut pop, |_| None);
    assert_eq!((round.last(), drr.ahead()), (Some(&99), 0));
    for i in flooding {
        assert_eq!(round.iter().filter(|n| **n == i).count(), QUANTUM - usize::from(i == 0), "{i}");
    }
}

#[test]
fn a_queue_that_fills_while_it_is_found_empty_stays() {
    let mut drr = DeficitRoundRobin::default();
    drr.enter(7);
    let filled = std::cell::Cell::new(false);
    let pop = |q: &u32| filled.get().then_some(*q);
    // Found empty, and filled at that moment.
    let taken = drr.take(2, pop, |q| {
        filled.set(true);
        Some(q)
    });
    assert_eq!(taken, [7, 7]);
}
