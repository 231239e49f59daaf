//! A fixed view: wide, narrow, with and without colours.

use app::admin::bodies::{DemoLink, DemoTour};
use app::demo::OperationCounts;
use insta::assert_snapshot;

use super::*;

fn server(name: &'static str, limit: &str, learned: f64) -> ServerView {
    ServerView {
        name,
        limit: limit.to_owned(),
        learned,
        breaker: BreakerState::Closed,
        badge: None,
        wait_reason: WaitReason::Pace,
        received: 1000,
        refused: 4,
    }
}

fn upstream(name: &'static str, limit: &str, servers: Vec<ServerView>) -> UpstreamView {
    UpstreamView {
        name,
        about: "does what it does",
        limit: limit.to_owned(),
        learned: servers.iter().map(|server| server.learned).sum(),
        answered: 48.94,
        received: 1000,
        refused: 4,
        waiting: 27,
        wait_reason: servers[0].wait_reason,
        why: "staying at 48.5/s, just below a limit of 50/s".to_owned(),
        servers,
    }
}

fn line(millis: u64, who: &str, what: &str) -> DemoEvent {
    DemoEvent {
        at: Duration::from_millis(millis),
        who: who.to_owned(),
        what: what.to_owned(),
    }
}

fn tour() -> DemoTour {
    let link = DemoLink {
        path: "/gates/polite/only".to_owned(),
        label: "gate polite/only".to_owned(),
    };
    DemoTour {
        step: 4,
        of: 8,
        title: "A Retry-After is obeyed".to_owned(),
        text: "All requests wait.".to_owned(),
        link,
        round: 1,
        elapsed_ms: 21_400,
        total_ms: 60_000,
        next_round_ms: 90_000,
        steps: Vec::new(),
    }
}

fn view() -> DemoView {
    let second = Duration::from_secs(1);
    let hold = WaitReason::Hold {
        until: second * 22,
        source: Source::RetryAfter,
    };
    let open = WaitReason::Breaker {
        until: Some(second * 23),
    };
    let paused = Badge::Paused {
        until: second * 24,
        errors: 2,
    };
    DemoView {
        elapsed: Duration::from_millis(21_400),
        gateway: "127.0.0.1:40001".parse().unwrap(),
        console: "http://127.0.0.1:40002/?token=5m9r0vg2c8xkq4s7d1tz6hw3ye".to_owned(),
        admin: "127.0.0.1:40002".parse().unwrap(),
        token: "/data/admin-token".into(),
        tour: tour(),
        operations: OperationCounts {
            retryable: 2,
            completed: 3,
            conflict: 1,
            ..OperationCounts::default()
        },
        job: Some(JobView {
            id: "job_1".to_owned(),
            progress: Some(42.4),
            stage: Some("extraction".to_owned()),
            end: None,
            refused: 2,
            next_check: Some(Duration::from_millis(3200)),
        }),
        upstreams: vec![
            upstream("steady", "50/s", vec![server("only", "50/s", 49.14)]),
            upstream(
                "polite",
                "120 in 10s",
                vec![ServerView {
                    wait_reason: hold,
                    ..server("only", "120 in 10s", 12.0)
                }],
            ),
            upstream(
                "pool",
                "68/s together",
                vec![
                    server("a", "3 at once, 100ms", 29.0),
                    ServerView {
                        breaker: BreakerState::Open,
                        wait_reason: open,
                        ..server("b", "3 at once, 100ms", 30.0)
                    },
                    ServerView {
                        badge: Some(paused),
                        ..server("c", "8/s", 8.0)
                    },
                    ServerView {
                        badge: Some(Badge::Disabled),
                        ..server("d", "8/s", 8.0)
                    },
                ],
            ),
        ],
        events: vec![
            line(12_300, "steady", "refused → 53.3/s becomes 37.3/s"),
            line(
                15_200,
                "polite",
                "429 with Retry-After 7s → all requests wait",
            ),
        ],
    }
}

fn canvas(columns: usize, rows: usize) -> Canvas {
    Canvas {
        columns,
        rows,
        has_colour: false,
    }
}

#[test]
fn frame_shows_everything_on_a_wide_terminal() {
    assert_snapshot!(frame(&view(), canvas(130, 40)), @r#"
    tidegate demo, 21.4s: no limit is configured, clients send as fast as possible
    console  http://127.0.0.1:40002/?token=5m9r0vg2c8xkq4s7d1tz6hw3ye
    gateway  http://127.0.0.1:40001
    try  curl -i http://127.0.0.1:40001/steady/hello
    or   curl -H "Authorization: Bearer $(cat /data/admin-token)" http://127.0.0.1:40002/api/v1/gates

    upstream capacity           learned  accepted  refused  breaker  waiting  about
    steady   50/s                49.1/s    48.9/s    0.4 %  closed        27  does what it does
             waiting for their turn at the learned rate; staying at 48.5/s, just below a limit of 50/s
    polite   120 in 10s          12.0/s    48.9/s    0.4 %  closed        27  does what it does
             waiting for the end of a hold at 22.0s, by Retry-After; staying at 48.5/s, just below a limit of 50/s
    pool     68/s together       75.0/s    48.9/s    0.4 %                27  does what it does
             waiting for the first endpoint that may send
      a      3 at once, 100ms    29.0/s              0.4 %  closed
      b      3 at once, 100ms    30.0/s              0.4 %  open     the next probe of the open breaker at 23.0s
      c      8/s                  8.0/s              0.4 %  closed   [paused] until 24.0s, error 2 in a row
      d      8/s                  8.0/s              0.4 %  closed   [disabled] until a person enables it

    step 4 of 8: A Retry-After is obeyed
    operations  3 delivered, 2 to be sent again, 1 in conflict
    job         42 %, extraction; status checks refused: 2, next in 4s

      12.3s  steady: refused → 53.3/s becomes 37.3/s
      15.2s  polite: 429 with Retry-After 7s → all requests wait
    "#);
}

#[test]
fn frame_fits_80_columns() {
    let drawn = frame(&view(), canvas(80, 40));
    assert!(drawn.lines().all(|line| line.chars().count() <= 80));
    assert_snapshot!(drawn, @"
    tidegate demo, 21.4s: no limit is configured, clients send as fast as possible
    console  http://127.0.0.1:40002/?token=5m9r0vg2c8xkq4s7d1tz6hw3ye
    gateway  http://127.0.0.1:40001
    try  curl -i http://127.0.0.1:40001/steady/hello

    upstream capacity           learned  accepted  refused  breaker  waiting
    steady   50/s                49.1/s    48.9/s    0.4 %  closed        27
             waiting for their turn at the learned rate; staying at 48.5/s, just be…
    polite   120 in 10s          12.0/s    48.9/s    0.4 %  closed        27
             waiting for the end of a hold at 22.0s, by Retry-After; staying at 48.…
    pool     68/s together       75.0/s    48.9/s    0.4 %                27
             waiting for the first endpoint that may send
      a      3 at once, 100ms    29.0/s              0.4 %  closed
      b      3 at once, 100ms    30.0/s              0.4 %  open     the next probe…
      c      8/s                  8.0/s              0.4 %  closed   [paused] until…
      d      8/s                  8.0/s              0.4 %  closed   [disabled] unt…

    step 4 of 8: A Retry-After is obeyed
    operations  3 delivered, 2 to be sent again, 1 in conflict
    job         42 %, extraction; status checks refused: 2, next in 4s

      12.3s  steady: refused → 53.3/s becomes 37.3/s
      15.2s  polite: 429 with Retry-After 7s → all requests wait
    ");
}

#[test]
fn job_line_tells_start_end_and_refused_checks() {
    let line = |job: Option<JobView>| job_line(job.as_ref()).text;
    let job = view().job.unwrap();
    assert_eq!(line(None), "job         none yet");
    let normal = JobView {
        refused: 0,
        ..job.clone()
    };
    assert_eq!(line(Some(normal)), "job         42 %, extraction");
    let done = JobView {
        end: Some("done".to_owned()),
        refused: 0,
        ..job
    };
    assert_eq!(line(Some(done)), "job         done");
}

#[test]
fn frame_cuts_lines_and_rows_to_fit_a_small_terminal() {
    let drawn = frame(&view(), canvas(60, 12));
    assert!(drawn.lines().all(|line| line.chars().count() <= 60));
    assert_eq!(drawn.lines().count(), 11);
    assert!(
        !drawn.contains("admin-token"),
        "a command that is cut off cannot be copied"
    );
    let drawn = frame(&view(), canvas(1, 1));
    assert_eq!(drawn, "");
}

#[test]
fn frame_colours_held_yellow_and_refusing_red() {
    let coloured = Canvas {
        has_colour: true,
        ..canvas(130, 40)
    };
    let drawn = frame(&view(), coloured);
    let codes = |name: &str| {
        let line = drawn.lines().find(|line| line.contains(name)).unwrap();
        line.split_once('m').unwrap().0.to_owned()
    };
    assert_eq!(codes("polite   "), "\x1b[33");
    assert_eq!(codes("  b  "), "\x1b[31");
    assert_eq!(codes("  c  "), "\x1b[33");
    let plain = frame(&view(), canvas(130, 40));
    assert!(drawn.len() > plain.len() && !plain.contains('\x1b'));
}

#[test]
fn block_shows_only_new_events_after_the_first() {
    let first = block(&view(), Duration::ZERO);
    assert!(first.starts_with("tidegate demo, 21.4s") && first.contains("admin-token"));
    let later = block(&view(), Duration::from_secs(15));
    assert!(later.starts_with("after 21.4s\n") && !later.contains("admin-token"));
    assert!(later.contains("15.2s  polite") && !later.contains("12.3s  steady"));
}
