//! Tests of the recorder, in virtual time.

use policy::hint::Source;
use policy::rate::Why;
use tidegate::GateOverride;

use super::*;

fn at(seconds: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(seconds)
}

#[test]
fn ring_has_gaps_where_nothing_was_recorded() {
    let mut ring = Ring::default();
    for second in [1, 2, 5] {
        ring.push(second, at(second));
    }
    let (start, points) = ring.window(Duration::from_secs(5), at(6));
    assert_eq!(start, at(2));
    assert_eq!(points, [Some(2), None, None, Some(5), None]);
    let (start, points) = ring.window(Duration::from_secs(60), at(6));
    assert_eq!((start, points.len()), (at(0), 7));
}

#[test]
fn ring_fills_short_intervals_and_no_long_ones() {
    let mut ring = Ring::default();
    ring.fill(1, at(0), at(3));
    ring.fill(2, at(3), at(100));
    let (_, points) = ring.window(Duration::from_secs(900), at(100));
    assert_eq!(&points[..5], [None, Some(1), Some(1), Some(1), None]);
    assert_eq!(points[99..], [None, Some(2)]);
}

#[test]
fn ring_is_bounded() {
    let mut ring = Ring::default();
    for second in 0..2000 {
        ring.push(second, at(second));
    }
    let (start, points) = ring.window(Duration::from_secs(5000), at(1999));
    assert_eq!((start, points.len()), (at(1100), MAX_POINTS));
    assert!(points.iter().all(Option::is_some));
}

fn shown(bands: &Bands) -> Vec<(BandState, u64, Option<u64>)> {
    let seconds = |at: Timestamp| at.since(Timestamp::ZERO).as_secs();
    let bands = bands.since(Timestamp::ZERO).into_iter();
    bands
        .map(|band| (band.state, seconds(band.from), band.to.map(seconds)))
        .collect()
}

#[test]
fn bands_follow_holds_and_breakers() {
    use BandState::{HalfOpen, Held, Isolated, Open};
    let mut bands = Bands::default();
    let hold = |until| StateChange::Held {
        until: at(until),
        source: Source::Assumed,
    };
    bands.apply(at(10), hold(20));
    bands.apply(at(15), hold(30));
    assert_eq!(shown(&bands), [(Held, 10, Some(30))]);
    bands.apply(at(40), hold(60));
    bands.apply(at(50), StateChange::Overridden(GateOverride::Release));
    assert_eq!(shown(&bands)[1..], [(Held, 40, Some(50))]);
    // Probes fail once, then succeed.
    let open = |until| StateChange::Opened {
        until: Some(at(until)),
    };
    bands.apply(at(100), open(104));
    assert_eq!(bands.current(Open, at(103)).unwrap().from, at(100));
    assert_eq!(bands.current(HalfOpen, at(105)).unwrap().from, at(104));
    bands.apply(at(106), open(110));
    bands.apply(at(112), StateChange::Closed);
    assert_eq!(
        shown(&bands)[2..],
        [
            (Open, 100, Some(104)),
            (HalfOpen, 104, Some(106)),
            (Open, 106, Some(110)),
            (HalfOpen, 110, Some(112)),
        ]
    );
    // Released while open: it was never half-open.
    bands.apply(at(120), open(130));
    bands.apply(at(125), StateChange::Overridden(GateOverride::Release));
    bands.apply(at(125), StateChange::Closed);
    assert_eq!(shown(&bands)[6..], [(Open, 120, Some(125))]);
    bands.apply(at(140), StateChange::Overridden(GateOverride::Isolate));
    bands.apply(at(140), StateChange::Opened { until: None });
    assert!(bands.current(Isolated, at(141)).unwrap().by_person);
    bands.apply(at(150), StateChange::Closed);
    assert_eq!(shown(&bands)[7..], [(Isolated, 140, Some(150))]);
    assert!(!bands.is_over(at(151)) && bands.is_over(at(2000)));
    for second in 200..300 {
        bands.apply(at(second * 10), hold(second * 10 + 1));
    }
    assert!(shown(&bands).len() <= 32);
}

/// A limiter on tokio's clock, which a test moves.
fn recorder() -> Recorder {
    let limiter = Limiter::builder().clock(tidegate::Clock::tokio()).build();
    Recorder::new(limiter)
}

async fn second(recorder: &Recorder) {
    tokio::time::advance(Duration::from_secs(1)).await;
    recorder.tick();
}

fn succeed(recorder: &Recorder, key: &str, times: u32) {
    for _ in 0..times {
        if let Ok(permit) = recorder.limiter.try_acquire(key) {
            permit.settle(&policy::outcome::Outcome::status(
                200,
                Duration::from_millis(10),
            ));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn busy_gate_is_recorded_and_idle_one_when_it_is_watched() {
    let recorder = recorder();
    recorder.limiter.try_acquire("idle").unwrap().give_back();
    recorder.tick();
    for _ in 0..20 {
        succeed(&recorder, "busy", 1);
        second(&recorder).await;
    }
    assert!(recorder.recent("idle").is_none());
    let recent = recorder.recent("busy").unwrap();
    assert_eq!(recent.last(), Some(&Some(1.0)));
    recorder.watch("idle");
    second(&recorder).await;
    second(&recorder).await;
    assert_eq!(recorder.recent("idle").unwrap().last(), Some(&Some(0.0)));
    let (_, totals) = recorder.totals(Duration::from_secs(10));
    let accepted: Vec<f32> = totals
        .iter()
        .flatten()
        .map(|point| point.accepted)
        .collect();
    assert_eq!(accepted[..8], [1.0; 8]);
    let view = recorder.limiter.gate("busy").unwrap();
    let figures = recorder.figures().per_second("busy", &view.gate);
    assert!((0.5..=1.1).contains(&figures.accepted), "{figures:?}");
}

#[tokio::test(start_paused = true)]
async fn number_of_recorded_gates_is_bounded() {
    let recorder = recorder();
    for number in 0..MAX_RECORDED + 100 {
        recorder.watch(&format!("host{number}"));
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let state = recorder.lock();
    assert_eq!(state.gates.len(), MAX_RECORDED);
    assert!(!state.gates.contains_key("host0"));
    assert!(state.gates.contains_key("host355"));
}

#[tokio::test(start_paused = true)]
async fn gate_that_is_not_looked_at_is_forgotten() {
    let recorder = recorder();
    recorder.watch("a");
    tokio::time::advance(UNUSED_AFTER).await;
    recorder.tick();
    assert!(recorder.recent("a").is_none());
}

#[test]
fn steps_of_a_rate_in_one_direction_for_one_reason_are_one_change() {
    let mut gate = RecordedGate::new(at(0));
    let change = |second, from, to, why| RateChange {
        at: at(second),
        from,
        to,
        why,
    };
    gate.add_change(change(1, 2.0, 3.0, Why::FastAnswers));
    gate.add_change(change(2, 3.0, 4.0, Why::FastAnswers));
    gate.add_change(change(3, 4.0, 2.0, Why::Throttled));
    gate.add_change(change(4, 2.0, 3.0, Why::FastAnswers));
    gate.add_change(change(60, 3.0, 4.0, Why::FastAnswers));
    assert_eq!(
        gate.changes(at(0)),
        [
            change(60, 3.0, 4.0, Why::FastAnswers),
            change(4, 2.0, 3.0, Why::FastAnswers),
            change(3, 4.0, 2.0, Why::Throttled),
            change(2, 2.0, 4.0, Why::FastAnswers),
        ]
    );
}
