//! Box plots of all metrics, as SVG or PNG.
//!
//! A box is the middle half of the upcalls, its line the median, the diamond the mean; whiskers reach to the
//! last value within one and a half times the box, the dot is the largest value. SVG uses the reader's font;
//! PNG needs a font of this machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use plotters::backend::{BitMapBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon, Rectangle, Text};
use plotters::prelude::DrawingBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    BLACK, Color, FontStyle, IntoFont, RGBColor, ShapeStyle, TextStyle, WHITE, register_font,
};

use crate::metrics::Measured;
use crate::report::Report;
use crate::text::{grouped, us};

/// A kind of file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Scalable, by far the smaller.
    Svg,
    /// Pixels.
    Png,
}

impl Kind {
    /// By the end of the name.
    ///
    /// # Errors
    ///
    /// The name ends in neither `.svg` nor `.png`.
    pub fn of(path: &Path) -> Result<Kind> {
        match path.extension().and_then(|end| end.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("svg") => Ok(Kind::Svg),
            Some("png") => Ok(Kind::Png),
            _ => bail!("{}: the name of a figure ends in .svg or .png", path.display()),
        }
    }
}

/// The font's name in SVG and in the plotting library.
const FONT: &str = "sans-serif";
/// Folders searched for fonts.
const FONT_FOLDERS: [&str; 3] = ["/usr/share/fonts", "/usr/local/share/fonts", "/usr/share/texmf/fonts"];
/// Preferred fonts.
const PREFERRED_FONTS: [&str; 4] =
    ["DejaVuSans.ttf", "LiberationSans-Regular.ttf", "NotoSans-Regular.ttf", "FreeSans.ttf"];
/// Maximum size of a font file.
const FONT_BYTES_MAX: u64 = 32 << 20;
/// Maximum folder entries visited, and maximum depth.
const ENTRIES_MAX: usize = 20_000;
const DEPTH_MAX: usize = 6;

/// Pixels of a PNG for each unit of the layout.
const PNG_SCALE: i32 = 2;
const WIDTH: i32 = 1000;
const LABELS: i32 = 230;
const COUNTS: i32 = 150;
const TOP: i32 = 64;
const BOTTOM: i32 = 64;
const ROW: i32 = 22;
const GAP: i32 = 12;
/// Maximum number of recordings in a plot.
const RECORDINGS_MAX: usize = 12;

const COLOURS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(255, 127, 14),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(23, 190, 207),
];

/// Draws the reports into a file.
///
/// # Errors
///
/// Without data, without a font for a PNG, or if the file cannot be written.
pub fn draw(reports: &[Report], path: &Path) -> Result<()> {
    let kind = Kind::of(path)?;
    let bytes = match kind {
        Kind::Svg => svg(reports)?.into_bytes(),
        Kind::Png => {
            find_font(&FONT_FOLDERS.map(PathBuf::from)).and_then(|font| use_font(&font))?;
            png(reports)?
        }
    };
    std::fs::write(path, bytes).with_context(|| format!("{}: cannot be written", path.display()))
}

/// The plot as SVG.
///
/// # Errors
///
/// Without data.
pub fn svg(reports: &[Report]) -> Result<String> {
    let layout = Layout::new(reports, 1)?;
    let mut out = String::new();
    let size = layout.size();
    paint(&SVGBackend::with_string(&mut out, size).into_drawing_area(), &layout)?;
    Ok(out)
}

/// The plot as PNG; a font must be registered.
fn png(reports: &[Report]) -> Result<Vec<u8>> {
    let layout = Layout::new(reports, PNG_SCALE)?;
    let (width, height) = layout.size();
    let mut pixels = vec![0; width as usize * height as usize * 3];
    paint(&BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area(), &layout)?;
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().context("the figure cannot be encoded")?;
    writer
        .write_image_data(&pixels)
        .and_then(|()| writer.finish())
        .context("the figure cannot be encoded")?;
    Ok(out)
}

/// A TrueType font in these folders: a preferred one, else the first by name.
pub(crate) fn find_font(folders: &[PathBuf]) -> Result<PathBuf> {
    let mut fonts: Vec<PathBuf> = Vec::new();
    let mut todo: Vec<(PathBuf, usize)> = folders.iter().map(|folder| (folder.clone(), 0)).collect();
    let mut seen = 0;
    while let Some((folder, depth)) = todo.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            seen += 1;
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth < DEPTH_MAX && seen < ENTRIES_MAX => {
                    todo.push((path, depth + 1))
                }
                Ok(kind) if kind.is_file() && path.extension().is_some_and(|end| end == "ttf") => {
                    fonts.push(path)
                }
                _ => {}
            }
        }
    }
    fonts.sort();
    let liked = |name: &str| fonts.iter().find(|font| font.ends_with(name));
    PREFERRED_FONTS.into_iter().find_map(liked).or(fonts.first()).cloned().ok_or_else(|| {
        let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        anyhow!(
            "no font (.ttf) found in {}: install one (Debian: fonts-dejavu-core), or have the figure as .svg, which needs none",
            folders.join(", ")
        )
    })
}

fn use_font(path: &Path) -> Result<()> {
    let shown = path.display();
    let length = std::fs::metadata(path).with_context(|| format!("{shown}: cannot be read"))?.len();
    if length > FONT_BYTES_MAX {
        bail!("{shown}: too large for a font");
    }
    let bytes = std::fs::read(path).with_context(|| format!("{shown}: cannot be read"))?;
    // Fonts live until the end of the program, which draws one plot.
    register_font(FONT, FontStyle::Normal, bytes.leak())
        .map_err(|_| anyhow!("{shown}: not a font that can be used"))
}

/// Layout, in pixels.
struct Layout<'a> {
    reports: &'a [Report],
    /// Rows by metric, each with a box for each report that has values.
    rows: Vec<Vec<(usize, &'a Measured)>>,
    scale: i32,
    height: i32,
    /// Range of the axis in nanoseconds.
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl<'a> Layout<'a> {
    fn new(reports: &'a [Report], scale: i32) -> Result<Self> {
        if reports.len() > RECORDINGS_MAX {
            bail!("a figure shows at most {RECORDINGS_MAX} recordings, not {}", reports.len());
        }
        let metrics = |report: &'a Report| report.main.iter().chain(&report.stages);
        let count = reports.first().map_or(0, |report| metrics(report).count());
        let rows: Vec<Vec<(usize, &Measured)>> = (0..count)
            .map(|row| {
                let boxes = reports
                    .iter()
                    .enumerate()
                    .filter_map(|(of, report)| Some((of, metrics(report).nth(row)?)));
                boxes.filter(|(_, measured)| measured.summary.count > 0).collect::<Vec<_>>()
            })
            .filter(|boxes| !boxes.is_empty())
            .collect();
        if rows.is_empty() {
            bail!("there is nothing to draw: no upcall has two events that belong together");
        }
        let all = || rows.iter().flatten().map(|(_, measured)| &measured.summary);
        let high = all().map(|summary| summary.max).max().unwrap_or_default().max(1) as f64;
        let least = all().map(|summary| summary.quartiles.0).min().unwrap_or_default().max(1) as f64;
        let logarithmic = high / least > 20.0;
        let low = if logarithmic { least / 2.0 } else { 0.0 };
        let height = rows.iter().map(|boxes| boxes.len() as i32 * ROW + GAP).sum::<i32>() + TOP + BOTTOM;
        Ok(Layout { reports, rows, scale, height, low, high: high * 1.1, logarithmic })
    }

    fn size(&self) -> (u32, u32) {
        ((WIDTH * self.scale) as u32, (self.height * self.scale) as u32)
    }

    fn point(&self, x: i32, y: i32) -> (i32, i32) {
        (x * self.scale, y * self.scale)
    }

    /// The place of a duration on the axis.
    fn x(&self, ns: f64) -> i32 {
        let share = if self.logarithmic {
            (ns.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (ns - self.low) / (self.high - self.low)
        };
        LABELS + (share * f64::from(WIDTH - LABELS - COUNTS)).round() as i32
    }

    /// Positions of the marks of the axis.
    fn ticks(&self) -> Vec<f64> {
        let decade = |value: f64| 10f64.powf(value.log10().floor());
        if !self.logarithmic {
            let step = decade(self.high / 4.0);
            let step = [5.0, 2.0, 1.0].map(|of| of * step).into_iter().find(|step| self.high / step >= 4.0);
            let step = step.unwrap_or(self.high);
            return (0..=(self.high / step) as u32).map(|tick| f64::from(tick) * step).collect();
        }
        let steps: &[f64] = if self.high / self.low > 3000.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let (first, count) = (decade(self.low), (self.high / self.low).log10() as i32 + 2);
        let all = (0..count).flat_map(|power| steps.iter().map(move |step| first * 10f64.powi(power) * step));
        all.filter(|tick| *tick >= self.low && *tick <= self.high).collect()
    }

    fn text(&self, size: i32, side: HPos) -> TextStyle<'static> {
        let size = f64::from(size * self.scale);
        TextStyle::from((FONT, size).into_font()).color(&BLACK).pos(Pos::new(side, VPos::Center))
    }
}

/// A mark of the axis: microseconds without needless digits.
fn tick_label(ns: f64) -> String {
    let us = ns / 1e3;
    if us >= 1.0 { grouped(us.round() as u64) } else { format!("{us}") }
}

type Area<B> = DrawingArea<B, Shift>;

fn failed<E: std::error::Error + Send + Sync>(
    error: plotters::drawing::DrawingAreaErrorKind<E>,
) -> anyhow::Error {
    anyhow!("the figure cannot be drawn: {error}")
}

fn paint<B: DrawingBackend>(area: &Area<B>, layout: &Layout<'_>) -> Result<()>
where
    B::ErrorType: 'static,
{
    area.fill(&WHITE).map_err(failed)?;
    let at = |x: i32, y: i32| layout.point(x, y);
    let text = |what: String, x: i32, y: i32, style: TextStyle<'static>| {
        area.draw(&Text::new(what, at(x, y), style)).map_err(failed)
    };
    text("Cost of upcalls".into(), WIDTH / 2, 18, layout.text(22, HPos::Center))?;
    legend(area, layout)?;
    let bottom = layout.height - BOTTOM;
    for tick in layout.ticks() {
        let x = layout.x(tick);
        let line = PathElement::new(vec![at(x, TOP - 4), at(x, bottom)], RGBColor(215, 215, 215));
        area.draw(&line).map_err(failed)?;
        text(tick_label(tick), x, bottom + 12, layout.text(13, HPos::Center))?;
    }
    let axis = if layout.logarithmic { "µs (logarithmic)" } else { "µs" };
    text(axis.into(), (LABELS + WIDTH - COUNTS) / 2, bottom + 28, layout.text(13, HPos::Center))?;
    text(
        "box: quartiles, line: median, diamond: mean, whiskers: 1.5 boxes, dot: largest; at the right the median".into(),
        WIDTH / 2,
        bottom + 48,
        layout.text(12, HPos::Center),
    )?;
    let mut y = TOP;
    for boxes in &layout.rows {
        let middle = y + boxes.len() as i32 * ROW / 2;
        if let Some((_, first)) = boxes.first() {
            text(first.metric.title.into(), LABELS - 10, middle, layout.text(14, HPos::Right))?;
        }
        for (of, measured) in boxes {
            draw_box(area, layout, measured, COLOURS[of % COLOURS.len()], y + ROW / 2)?;
            y += ROW;
        }
        y += GAP;
    }
    area.present().map_err(failed)
}

/// Colours of the recordings, if there are several.
fn legend<B: DrawingBackend>(area: &Area<B>, layout: &Layout<'_>) -> Result<()>
where
    B::ErrorType: 'static,
{
    let many = layout.reports.len() as i32;
    let width = (WIDTH - 20) / many.max(1);
    for (index, report) in layout.reports.iter().enumerate() {
        let (x, colour) = (10 + index as i32 * width, COLOURS[index % COLOURS.len()]);
        let corners = [layout.point(x, 40), layout.point(x + 10, 50)];
        area.draw(&Rectangle::new(corners, colour.filled())).map_err(failed)?;
        let most = usize::try_from(width / 7).unwrap_or_default().max(4);
        let name: String = match report.name.chars().count() {
            count if count > most => {
                std::iter::once('…').chain(report.name.chars().skip(count - most + 1)).collect()
            }
            _ => report.name.clone(),
        };
        let style = layout.text(13, HPos::Left);
        area.draw(&Text::new(name, layout.point(x + 16, 45), style)).map_err(failed)?;
    }
    Ok(())
}

fn draw_box<B: DrawingBackend>(
    area: &Area<B>,
    layout: &Layout<'_>,
    measured: &Measured,
    colour: RGBColor,
    middle: i32,
) -> Result<()>
where
    B::ErrorType: 'static,
{
    let summary = &measured.summary;
    let at = |x: i32, y: i32| layout.point(x, y);
    let x = |ns: u64| layout.x(ns as f64);
    let stroke = |colour: RGBColor| ShapeStyle::from(&colour).stroke_width(layout.scale as u32);
    let line = |points: [(i32, i32); 2], style: ShapeStyle| {
        area.draw(&PathElement::new(points.map(|(x, y)| at(x, y)).to_vec(), style)).map_err(failed)
    };
    let (low, high) = summary.whiskers(&measured.values);
    let (box_low, box_high) = (x(summary.quartiles.0), x(summary.quartiles.1));
    let half = ROW / 3;
    for (from, to) in [(x(low).min(box_low), box_low), (box_high, x(high).max(box_high))] {
        line([(from, middle), (to, middle)], stroke(colour))?;
    }
    for end in [x(low).min(box_low), x(high).max(box_high)] {
        line([(end, middle - half / 2), (end, middle + half / 2)], stroke(colour))?;
    }
    let corners = [at(box_low, middle - half), at(box_high.max(box_low + 1), middle + half)];
    area.draw(&Rectangle::new(corners, colour.mix(0.35).filled())).map_err(failed)?;
    area.draw(&Rectangle::new(corners, stroke(colour))).map_err(failed)?;
    let median = layout.x(summary.median);
    let thick = ShapeStyle::from(&BLACK).stroke_width(2 * layout.scale as u32);
    line([(median, middle - half), (median, middle + half)], thick)?;
    let mean = layout.x(summary.mean);
    let diamond = [(mean - 4, middle), (mean, middle - 4), (mean + 4, middle), (mean, middle + 4)];
    let diamond: Vec<(i32, i32)> = diamond.map(|(x, y)| at(x, y)).to_vec();
    area.draw(&Polygon::new(diamond.clone(), WHITE.filled())).map_err(failed)?;
    let outline: Vec<(i32, i32)> = diamond.iter().chain(diamond.first()).copied().collect();
    area.draw(&PathElement::new(outline, stroke(BLACK))).map_err(failed)?;
    let dot = Circle::new(at(x(summary.max), middle), 2 * layout.scale, colour.filled());
    area.draw(&dot).map_err(failed)?;
    let counts = format!("{} µs (n = {})", us(summary.median), grouped(summary.count as u64));
    let style = layout.text(12, HPos::Left);
    area.draw(&Text::new(counts, at(WIDTH - COUNTS + 14, middle), style)).map_err(failed)
}
