//! Plots of the results, as SVG: all rows as bars, and the rate over the size of a batch.

use crate::report::{Row, number};
use std::fmt::Write as _;

const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 20.0;
/// Start and maximum length of bars.
const BARS_AT: f64 = 260.0;
const BAR_LONGEST: f64 = 720.0;
const BAR_HEIGHT: f64 = 18.0;
const LINE: f64 = 24.0;
/// Colours suitable for colour blindness (Okabe and Ito); the first is the row's first side.
const COLOURS: [&str; 7] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#999999"];

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    let _ = writeln!(out, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#, escaped(words));
}

fn line(out: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str) {
    let _ = writeln!(
        out,
        r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{colour}" stroke-width="1.5"/>"#
    );
}

fn page(height: f64, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {WIDTH} {height:.0}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

/// A bar for each side of each row: its length is the median, the thin line reaches from the least to the
/// most. Each row has its own scale.
pub(crate) fn bars(rows: &[Row]) -> String {
    let mut out = String::new();
    let mut y = MARGIN;
    for row in rows {
        let spreads = || row.sides.iter().filter_map(|s| s.spread());
        let most = spreads().map(|s| s.most).fold(0.0, f64::max);
        y += LINE;
        text(&mut out, (MARGIN, y), "start", &format!("{}: {} [{}]", row.id, row.title, row.unit));
        for (at, side) in row.sides.iter().enumerate() {
            y += LINE;
            text(&mut out, (BARS_AT - 8.0, y), "end", &side.side);
            let Some(spread) = side.spread() else {
                text(&mut out, (BARS_AT, y), "start", "none");
                continue;
            };
            let length = |value: f64| if most > 0.0 { value / most * BAR_LONGEST } else { 0.0 };
            let top = y - BAR_HEIGHT + 4.0;
            let colour = COLOURS[at % COLOURS.len()];
            let _ = writeln!(
                out,
                r#"<rect x="{BARS_AT}" y="{top:.1}" width="{:.1}" height="{BAR_HEIGHT}" fill="{colour}"/>"#,
                length(spread.median)
            );
            let middle = top + BAR_HEIGHT / 2.0;
            let (least, most) = (BARS_AT + length(spread.least), BARS_AT + length(spread.most));
            line(&mut out, (least, middle), (most, middle), "black");
            for x in [least, most] {
                line(&mut out, (x, middle - 4.0), (x, middle + 4.0), "black");
            }
            text(&mut out, (BARS_AT + BAR_LONGEST + 10.0, y), "start", &number(spread.median));
        }
        y += LINE / 2.0;
    }
    page(y + MARGIN, &out)
}

/// The size of a batch in a side's name.
fn batch_size(side: &str) -> Option<u32> {
    side.rsplit_once("batch ")?.1.parse().ok()
}

/// The rate over the size of a batch; `None` for a row with less than two sizes.
pub(crate) fn over_batches(row: &Row) -> Option<String> {
    const HEIGHT: f64 = 420.0;
    let (left, right, top, bottom) = (80.0, WIDTH - 40.0, 60.0, HEIGHT - 60.0);
    let point = |s: &crate::report::SideSamples| Some((batch_size(&s.side)?, s.spread()?));
    let points: Vec<_> = row.sides.iter().filter_map(point).collect();
    let (first, last) = (points.first()?.0, points.last()?.0);
    let most = points.iter().map(|p| p.1.most).fold(0.0, f64::max);
    if first >= last || most <= 0.0 {
        return None;
    }
    let bits = |size: u32| f64::from(size.max(1)).log2();
    let x = |size: u32| left + (bits(size) - bits(first)) / (bits(last) - bits(first)) * (right - left);
    let y = |value: f64| bottom - value / most * (bottom - top);
    let mut out = String::new();
    text(
        &mut out,
        (MARGIN, 30.0),
        "start",
        &format!("{} [{}] over the size of a batch", row.title, row.unit),
    );
    line(&mut out, (left, bottom), (right, bottom), "black");
    line(&mut out, (left, top), (left, bottom), "black");
    for quarter in 0..=4 {
        let value = most * f64::from(quarter) / 4.0;
        line(&mut out, (left - 5.0, y(value)), (left, y(value)), "black");
        text(&mut out, (left - 8.0, y(value) + 4.0), "end", &number(value));
    }
    for (size, spread) in &points {
        let at = x(*size);
        text(&mut out, (at, bottom + 20.0), "middle", &size.to_string());
        line(&mut out, (at, y(spread.least)), (at, y(spread.most)), "black");
        let _ = writeln!(
            out,
            r#"<circle cx="{at:.1}" cy="{:.1}" r="4" fill="{}"/>"#,
            y(spread.median),
            COLOURS[0]
        );
    }
    for pair in points.windows(2) {
        let at = |(size, spread): &(u32, crate::report::Spread)| (x(*size), y(spread.median));
        line(&mut out, at(&pair[0]), at(&pair[1]), COLOURS[0]);
    }
    Some(page(HEIGHT, &out))
}
