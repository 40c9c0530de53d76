use super::model::*;
use super::screen::{Focus, Screen};
use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

const SECOND: Duration = Duration::from_secs(1);

/// A daemon after that many seconds with constant counts per second.
fn reading(pid: u32, seconds: u64) -> StatusModel {
    StatusModel::from_json(&status_of(pid, seconds)).unwrap()
}

fn status_of(pid: u32, n: u64) -> Value {
    let thread = json!({"id": "0", "received": 1000 * n, "cache_hits": 900 * n, "megaflow_hits": 80 * n,
        "subtable_lookups": 120 * n, "upcalls": 15 * n, "upcalls_lost": 5 * n, "recirculated": 0,
        "sent_packets": 800 * n, "sent_batches": 50 * n, "busy_cycles": 300_000 * n, "idle_cycles": 700_000 * n});
    let idle = json!({"id": "1", "received": 0, "idle_cycles": 1_000_000 * n});
    let port = |name: &str, rx: u64, drops: Value| {
        json!({"name": name, "link": "up", "rx_packets": rx * n, "rx_bytes": 100 * rx * n, "tx_packets": 7 * n,
            "tx_bytes": 700 * n, "drops": drops, "upcalls_waiting": rx / 100})
    };
    json!({"version": "0.1.0", "pid": pid, "uptime_ms": 1000 * n,
        "datapaths": [{"name": "netdev@ovs-netdev", "flows": 5, "masks": 2, "hits": 980 * n, "misses": 20 * n,
            "lost": 5 * n, "threads": [thread, idle],
            "upcalls": {"installed": 4, "flow_limit": 200_000, "answers": 15 * n, "answers_us": 600 * n,
                "dump_duration_ms": 3}}],
        "bridges": [{"name": "br0", "ports": [port("p0", 300, json!({"rules": 10 * n, "tx_down": 2 * n, "meter": 4})),
            port("p1", 700, json!({"meter": 9})), {"name": "p2", "error": "no such device"}]}]})
}

fn view() -> View {
    View::between(&reading(1, 10), &reading(1, 12), 2 * SECOND)
}

#[test]
fn rates_are_differences_over_the_interval() {
    let view = view();
    let t = &view.threads[0];
    assert_eq!((t.packets, t.cycles_per_packet, t.busy), (Some(1000.0), Some(300.0), Some(0.3)));
    assert_eq!((t.cache, t.megaflow, t.miss), (Some(0.9), Some(0.08), Some(0.02)));
    assert_eq!((t.lookups_per_hit, t.packets_per_batch), (Some(1.5), Some(16.0)));
    assert_eq!((t.recirculated, t.upcalls, t.lost), (Some(0.0), Some(15.0), Some(5.0)));
    // Without packets there are no averages.
    let idle = &view.threads[1];
    assert_eq!((idle.packets, idle.busy), (Some(0.0), Some(0.0)));
    assert_eq!((idle.cycles_per_packet, idle.cache, idle.lookups_per_hit), (None, None, None));
    let p = &view.ports[0];
    assert_eq!(
        (p.rx_packets, p.rx_bits, p.tx_packets, p.tx_bits),
        (Some(300.0), Some(240_000.0), Some(7.0), Some(5600.0))
    );
    assert_eq!((p.dropped, p.waiting), (Some(12.0), 3));
    assert_eq!(p.drops.rates, [("rules".to_string(), 10.0), ("tx_down".to_string(), 2.0)].into());
    assert_eq!(p.drops.totals["meter"], 4);
    let d = &view.datapaths[0];
    assert_eq!((d.hits, d.misses, d.lost), (Some(980.0), Some(20.0), Some(5.0)));
    assert_eq!((d.answers, d.answer_us, d.installed), (Some(15.0), Some(40.0), 4));
}

#[test]
fn unknown_values_are_marked() {
    // The first reading, a new thread, cleared counters, no elapsed time.
    let first = View::first(&reading(1, 10));
    assert_eq!((first.threads[0].packets, first.ports[0].dropped, first.elapsed), (None, None, None));
    let mut before = reading(1, 10);
    before.datapaths[0].threads.pop();
    before.datapaths[0].threads[0].received = 1_000_000;
    let view = View::between(&before, &reading(1, 12), 2 * SECOND);
    assert_eq!((view.threads[0].packets, view.threads[0].cycles_per_packet), (None, None));
    assert_eq!((view.threads[0].cache, view.threads[1].packets), (Some(0.9), None));
    let at_once = View::between(&reading(1, 10), &reading(1, 10), Duration::ZERO);
    assert_eq!(at_once.threads[0].packets, None);
    // Drops after a reset of the counters.
    let mut more = reading(1, 10);
    more.bridges[0].ports[0].drops.insert("rules".to_string(), u64::MAX);
    assert_eq!(View::between(&more, &reading(1, 12), SECOND).ports[0].dropped, None);
    // An answer of another age.
    let odd =
        StatusModel::from_json(&json!({"datapaths": [{"threads": [{}]}], "bridges": [{"ports": [{}]}]}))
            .unwrap();
    let view = View::between(&odd, &odd, SECOND);
    assert_eq!((view.threads[0].packets, view.ports[0].rx_bits), (Some(0.0), Some(0.0)));
}

#[test]
fn a_daemon_is_followed_through_failures_and_restarts() {
    let mut follower = Follower::default();
    follower.take(SECOND, Ok(reading(1, 10)));
    assert_eq!((follower.view.elapsed, &follower.notice), (None, &None));
    follower.take(2 * SECOND, Ok(reading(1, 11)));
    assert_eq!(follower.view.threads[0].packets, Some(1000.0));
    // The screen stays without a reply, and continues over the whole time.
    follower.take(3 * SECOND, Err("cannot connect".to_string()));
    assert_eq!(follower.view.threads[0].packets, Some(1000.0));
    assert!(follower.notice.as_ref().unwrap().contains("cannot connect"));
    follower.take(4 * SECOND, Ok(reading(1, 13)));
    assert_eq!((follower.view.elapsed, &follower.notice), (Some(2 * SECOND), &None));
    assert_eq!(follower.view.threads[0].packets, Some(1000.0));
    // Another process, even with larger counters; or the same id with a younger clock.
    for (pid, seconds) in [(2, 500), (2, 3)] {
        follower.take(5 * SECOND, Ok(reading(pid, seconds)));
        assert!(follower.notice.as_ref().unwrap().contains("restarted"), "{pid} {seconds}");
        assert_eq!(follower.view.threads[0].packets, None);
    }
    // Long enough to be read.
    follower.take(6 * SECOND, Ok(reading(2, 4)));
    assert!(follower.view.threads[0].packets == Some(1000.0) && follower.notice.is_some());
    follower.take(10 * SECOND, Ok(reading(2, 8)));
    assert_eq!((follower.view.threads[0].packets, &follower.notice), (Some(1000.0), &None));
}

#[test]
fn tables_are_sorted_by_a_column() {
    let names = |column: Option<usize>, reversed: bool| -> Vec<String> {
        let mut table = text::ports(&view());
        table.sort(Sorting { column, reversed });
        table.rows.iter().map(|row| row[0].text.clone()).collect()
    };
    assert_eq!(names(None, true), ["p0", "p1", "p2"]);
    assert_eq!(names(Some(0), true), ["p2", "p1", "p0"]);
    // The largest first; as numbers, not as texts.
    assert_eq!(names(Some(3), false), ["p1", "p0", "p2"]);
    assert_eq!(names(Some(3), true), ["p2", "p0", "p1"]);
    // Unknown values are last in either order.
    let mut before = reading(1, 10);
    before.bridges[0].ports.remove(1);
    for (reversed, order) in [(false, ["p0", "p2", "p1"]), (true, ["p2", "p0", "p1"])] {
        let mut table = text::ports(&View::between(&before, &reading(1, 12), SECOND));
        table.sort(Sorting { column: Some(3), reversed });
        let names: Vec<_> = table.rows.iter().map(|row| row[0].text.as_str()).collect();
        assert_eq!(names, order);
    }
}

const PLAIN: &str = "\
Sluice 0.1.0, up 12s, over 2.0 s
Flows of netdev@ovs-netdev: 5 in 2 masks, 4 of at most 200000 kept, dumped in 3 ms; hit 980/s, missed 20/s
Upcalls: 15/s answered after 40 us, 5/s lost

  Thread  Pkt/s  Cyc/pkt   Busy  Cache  Megaflow  Miss  Lookups/hit  Pkt/batch  Recirc/s  Upcall/s  Lost/s
  0        1.0k      300  30.0%  90.0%      8.0%  2.0%         1.50      16.00         0        15       5
  1           0        -   0.0%      -         -     -            -          -         0         0       0

  Port  Bridge  Link  Rx pkt/s  Rx bit/s  Tx pkt/s  Tx bit/s  Drop/s  Queued  Drops by reason
  p0       br0    up       300      240k         7      5.6k      12       3  rules 10/s, tx_down 2/s
  p1       br0    up       700      560k         7      5.6k       0       7  meter 9
  p2       br0     -         0         0         0         0       0       0  error: no such device
";

#[test]
fn the_plain_screen_and_the_json() {
    assert_eq!(text::plain(&view(), Orders::default()), PLAIN);
    let sorted = text::plain(&view(), sorting(Some("rx BIT/s")).unwrap());
    assert!(sorted.find("p1 ").unwrap() < sorted.find("p0 ").unwrap(), "{sorted}");
    let json: Value = serde_json::from_str(&text::json(&view())).unwrap();
    assert_eq!(json["interval_s"], json!(2.0));
    assert_eq!(json["threads"][0]["busy"], json!(0.3));
    assert_eq!(json["threads"][1]["cycles_per_packet"], Value::Null);
    assert_eq!(json["ports"][0]["drops_per_s"], json!({"rules": 10.0, "tx_down": 2.0}));
    assert_eq!(json["ports"][0]["drops"], json!({"rules": 120, "tx_down": 24, "meter": 4}));
    assert_eq!(json["datapaths"][0]["answer_us"], json!(40.0));
}

fn live_screen() -> Screen {
    let mut screen = Screen::new(Orders::default());
    screen.follower.take(SECOND, Ok(reading(1, 10)));
    screen.follower.take(3 * SECOND, Ok(reading(1, 12)));
    screen
}

/// The lines of a terminal of that size, without trailing blanks.
fn drawn(screen: &Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    let cells = &terminal.backend().buffer().content;
    let lines =
        cells.chunks(usize::from(width)).map(|line| line.iter().map(|c| c.symbol()).collect::<String>());
    lines.map(|line| line.trim_end().to_string()).collect()
}

fn press(screen: &mut Screen, keys: &[KeyCode]) {
    keys.iter().for_each(|code| screen.key(KeyEvent::new(*code, KeyModifiers::NONE)));
}

#[test]
fn the_screen_shows_what_the_plain_one_does() {
    let lines = drawn(&live_screen(), 120, 14);
    let plain: Vec<&str> = PLAIN.lines().collect();
    assert_eq!(lines[..4], plain[..4]);
    let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
    for (drawn, plain) in lines[4..12].iter().zip(&plain[4..]) {
        assert_eq!(words(drawn), words(plain));
    }
    assert_eq!(lines[12], "");
    assert!(lines[13].starts_with("q quit"), "{lines:?}");
}

#[test]
fn terminals_of_any_size() {
    let screen = live_screen();
    for (width, height) in [(1, 1), (3, 200), (500, 2), (20, 9), (80, 24)] {
        let lines = drawn(&screen, width, height);
        assert_eq!(lines.len(), usize::from(height));
        assert!(lines[0].starts_with('S') || height < 4, "{width}x{height}: {lines:?}");
    }
    // The headings of the ports and one port are visible if there is space for anything.
    let lines = drawn(&screen, 80, 11);
    assert!(lines[8].starts_with("Port") && lines[9].starts_with("p0"), "{lines:?}");
}

#[test]
fn keys() {
    let mut screen = live_screen();
    press(&mut screen, &[KeyCode::Char('p')]);
    assert!(screen.paused && drawn(&screen, 80, 24)[0].ends_with("(paused)"));
    press(&mut screen, &[KeyCode::Char(' ')]);
    assert!(!screen.paused);
    // Sorting: columns in a circle, with none in between.
    press(&mut screen, &[KeyCode::Right; 4]);
    assert_eq!(screen.by.ports, Sorting { column: Some(3), reversed: false });
    let first = |screen: &Screen| drawn(screen, 80, 24)[9].split(' ').next().unwrap().to_string();
    assert_eq!(first(&screen), "p1");
    press(&mut screen, &[KeyCode::Char('r')]);
    assert_eq!(first(&screen), "p2");
    press(&mut screen, &[KeyCode::Left; 4]);
    assert_eq!(screen.by.ports.column, None);
    press(&mut screen, &[KeyCode::Left]);
    assert_eq!(screen.by.ports.column, Some(9));
    press(&mut screen, &[KeyCode::Right, KeyCode::Tab, KeyCode::Right]);
    assert_eq!(
        (screen.by.ports.column, screen.by.threads.column, screen.focus),
        (None, Some(0), Focus::Threads)
    );
    // Scrolling stops at both ends, and shows everything that fits.
    press(&mut screen, &[KeyCode::Down, KeyCode::Down, KeyCode::Down, KeyCode::Up]);
    assert_eq!(screen.ports_scrolled, 1);
    assert!(drawn(&screen, 80, 11)[9].starts_with("p1"));
    assert!(drawn(&screen, 80, 24)[9].starts_with("p0"));
    press(&mut screen, &[KeyCode::PageUp]);
    assert_eq!(screen.ports_scrolled, 0);
    assert!(!screen.over);
    screen.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    assert!(screen.over);
}

#[test]
fn notices_stand_below_the_head() {
    let mut screen = live_screen();
    screen.follower.take(4 * SECOND, Err("connection refused".to_string()));
    assert_eq!(drawn(&screen, 80, 24)[1], "no answer, asking again: connection refused");
    screen.follower.take(5 * SECOND, Ok(reading(2, 1)));
    assert!(drawn(&screen, 80, 24)[1].contains("restarted"));
}

#[test]
fn words_on_the_command_line() {
    assert_eq!(parse_delay("0.5"), Ok(Duration::from_millis(500)));
    for bad in ["", "0", "-1", "nan", "inf", "1s", "3601"] {
        assert!(parse_delay(bad).is_err(), "{bad}");
    }
    assert_eq!(sorting(None).unwrap(), Default::default());
    assert_eq!(sorting(Some("Busy")).unwrap().threads.column, Some(3));
    let refused = sorting(Some("x")).unwrap_err().to_string();
    assert!(refused.contains("no such column") && refused.contains("Lookups/hit"), "{refused}");
}

/// A daemon with connections after that many seconds: zone 7 at its limit, and `others` idle zones.
fn tracking(n: u64, others: u64) -> StatusModel {
    let counts = |connections: u64, per_s: u64, refused_per_s: u64| {
        json!({"connections": connections, "created": per_s * n + connections, "ended": per_s * n,
            "refused": {"full": 2, "zone_limit": refused_per_s * n}})
    };
    let mut zones = vec![
        json!({"zone": 3, "limit": null, "counts": counts(1, 50, 0)}),
        json!({"zone": 7, "limit": 90, "counts": counts(90, 4, 2000)}),
    ];
    zones.extend((0..others).map(|z| json!({"zone": 100 + z, "limit": null, "counts": counts(0, 0, 0)})));
    let mut status = status_of(1, n);
    status["datapaths"][0]["connections"] =
        json!({"maximum": 3_000_000, "all": counts(91, 54, 2000), "zones_used": zones.len(), "zones": zones});
    StatusModel::from_json(&status).unwrap()
}

#[test]
fn zones_of_connections() {
    let view = View::between(&tracking(10, 0), &tracking(12, 1), 2 * SECOND);
    let plain = text::plain(&view, Orders::default());
    let expected = "
Connections: 91, at most 3000000; 54/s created, 54/s ended, 2.0k/s refused

  Thread";
    assert!(plain.contains(expected), "{plain}");
    // Zone 100 was not listed before.
    let expected = "
  Zone  Connections  Limit  New/s  Ended/s  Refused/s  Refused by reason
  7              90     90      4        4       2.0k  zone_limit 2.0k/s
  3               1      -     50       50          0  full 2
  100             0      -      -        -          -  full 2

  Port";
    assert!(plain.contains(expected), "{plain}");
    let sorted = text::plain(&view, sorting(Some("new/s")).unwrap());
    assert!(sorted.find("\n  3 ").unwrap() < sorted.find("\n  7 ").unwrap(), "{sorted}");
    let json: Value = serde_json::from_str(&text::json(&view)).unwrap();
    assert_eq!(json["datapaths"][0]["connections"]["refused_per_s"], json!(2000.0));
    assert_eq!(json["zones"][0]["refusals_per_s"], json!({"zone_limit": 2000.0}));
    assert_eq!(
        (&json["zones"][1]["limit"], &json["zones"][2]["created_per_s"]),
        (&Value::Null, &Value::Null)
    );
    // Without a tracker that counts, there is no line and no table.
    assert_eq!((self::view().zones.len(), &self::view().datapaths[0].connections), (0, &None));
    assert!(!PLAIN.contains("Connections") && !PLAIN.contains("Zone"));
}

#[test]
fn zones_are_scrolled_and_sorted_by_keys() {
    let mut screen = Screen::new(Orders::default());
    screen.follower.take(SECOND, Ok(tracking(10, 20)));
    screen.follower.take(3 * SECOND, Ok(tracking(12, 20)));
    let zones = |screen: &Screen| -> Vec<String> {
        let lines = drawn(screen, 100, 40);
        let from = lines.iter().position(|line| line.starts_with("Zone")).unwrap() + 1;
        let rows = lines[from..].iter().take_while(|line| !line.is_empty());
        rows.map(|line| line.split(' ').next().unwrap().to_string()).collect()
    };
    assert_eq!(zones(&screen), ["7", "3", "100", "101", "102", "103", "104", "105"]);
    // Threads, then zones.
    press(&mut screen, &[KeyCode::Tab, KeyCode::Tab]);
    assert_eq!(screen.focus, Focus::Zones);
    press(&mut screen, &[KeyCode::Down, KeyCode::PageDown]);
    assert_eq!((screen.zones_scrolled, screen.ports_scrolled), (11, 0));
    assert_eq!(zones(&screen), ["109", "110", "111", "112", "113", "114", "115", "116"]);
    press(&mut screen, &[KeyCode::End]);
    assert_eq!((screen.zones_scrolled, zones(&screen).last().unwrap().as_str()), (21, "119"));
    press(&mut screen, &[KeyCode::Home, KeyCode::Right, KeyCode::Char('r')]);
    assert_eq!(screen.by.zones, Sorting { column: Some(0), reversed: true });
    assert_eq!(zones(&screen)[..3], ["3", "7", "100"]);
    press(&mut screen, &[KeyCode::Tab, KeyCode::Down]);
    assert_eq!((screen.focus, screen.ports_scrolled, screen.zones_scrolled), (Focus::Ports, 1, 0));
    for (width, height) in [(1, 1), (3, 200), (500, 2), (20, 9), (80, 16)] {
        assert_eq!(drawn(&screen, width, height).len(), usize::from(height));
    }
}
