use super::*;
use serde_json::Value;
use std::cell::RefCell;
use std::rc::Rc;

fn request<'a>(host: &'a str, path: &'a str) -> Request<'a> {
    Request { is_head: false, path, query: "", host }
}

#[test]
fn only_names_of_this_machine_are_served() {
    for (host, expected) in [
        ("127.0.0.1:9180", true),
        ("127.9.9.9", true),
        ("[::1]:9180", true),
        ("[::1]", true),
        ("localhost:9180", true),
        ("LocalHost", true),
        ("", false),
        ("192.0.2.1:9180", false),
        ("localhost.example.com", false),
        ("example.com:9180", false),
        ("127.0.0.1.example.com", false),
        ("[::1", false),
    ] {
        assert_eq!(is_here(host), expected, "{host}");
    }
    let mut web = Web::new(Duration::ZERO, Box::new(|| panic!("not asked")));
    assert_eq!(web.answer(&request("example.com", DATA)).status, 403);
    assert_eq!(web.answer(&request("localhost", "/x")).status, 404);
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let mut web = Web::new(Duration::ZERO, Box::new(|| panic!("not asked")));
    let reply = web.answer(&request("localhost", "/"));
    assert_eq!((reply.status, reply.content_type), (200, "text/html; charset=utf-8"));
    assert!(reply.headers.starts_with("Content-Security-Policy: default-src 'none'; "));
    // No address but the name of a format, and no way for names to become more than text.
    let page = String::from_utf8(reply.body.to_vec()).unwrap();
    assert_eq!(page.matches("://").count(), page.matches("http://www.w3.org/2000/svg").count());
    for way in
        ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "src=", "@import", "url("]
    {
        assert!(!page.contains(way), "{way}");
    }
    // Each member of the view that the page reads exists.
    assert!(page.contains("fetch(\"data.json\""));
}

#[test]
fn the_daemon_is_asked_once_an_interval() {
    let asked = Rc::new(RefCell::new(0));
    let count = asked.clone();
    let read = move || {
        let n = count.replace_with(|n| *n + 1) as u64;
        if n == 3 {
            return Err("gone".to_string());
        }
        let port = json!({"name": "p0", "rx_packets": 100 * n, "drops": {"rules": 7}});
        let bridges = json!([{"name": "br0", "ports": [port]}]);
        let sessions = json!([{"interface": "p0", "protocol": "bfd", "live": true}]);
        StatusModel::from_json(&json!({"version": "1", "bridges": bridges, "sessions": sessions}))
    };
    let mut web = Web::new(Duration::from_secs(3600), Box::new(read));
    let data = |web: &mut Web| -> Value {
        let reply = web.answer(&request("localhost", DATA));
        assert_eq!((reply.status, reply.content_type), (200, "application/json"));
        serde_json::from_slice(&reply.body).unwrap()
    };
    let first = data(&mut web);
    assert_eq!((&first["ports"][0]["rx_packets_per_s"], &first["notice"]), (&Value::Null, &Value::Null));
    assert_eq!(first["ports"][0]["drops"], json!({"rules": 7}));
    let session = json!([{"interface": "p0", "protocol": "bfd", "live": true, "forwarding": false}]);
    assert_eq!(first["sessions"], session);
    // Another page within the interval has the same values.
    assert_eq!(data(&mut web), first);
    assert_eq!(*asked.borrow(), 1);
    web.delay = Duration::ZERO;
    assert!(data(&mut web)["ports"][0]["rx_packets_per_s"].as_f64().is_some_and(|rate| rate > 0.0));
    data(&mut web);
    let lost = data(&mut web);
    assert_eq!((*asked.borrow(), lost["notice"].as_str()), (4, Some("no answer, asking again: gone")));
    assert_eq!(lost["ports"][0]["name"], "p0");
}
