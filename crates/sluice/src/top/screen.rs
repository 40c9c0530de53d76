//! The screen of `sluice top`: draws the view into any ratatui frame, and handles keys. No terminal in here.

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::model::{Follower, Orders, Sorting, Table};
use super::text;

/// Lines that the keys for pages move.
const PAGE: usize = 10;
const KEYS: &str = "q quit  p pause  Tab table  Left/Right sort by column  r reverse  Up/Down scroll";
/// Maximum number of zones on the screen.
const ZONES_SHOWN: usize = 8;

/// The tables of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Focus {
    Threads,
    Zones,
    Ports,
}

/// The state of the screen.
#[derive(Debug)]
pub(crate) struct Screen {
    pub(crate) follower: Follower,
    pub(crate) paused: bool,
    pub(crate) over: bool,
    /// The table that keys sort. They scroll zones while those have it, else ports.
    pub(crate) focus: Focus,
    pub(crate) by: Orders,
    /// Zones above the first one shown.
    pub(crate) zones_scrolled: usize,
    /// Ports above the first one shown.
    pub(crate) ports_scrolled: usize,
}

impl Screen {
    pub(crate) fn new(by: Orders) -> Screen {
        Screen {
            follower: Follower::default(),
            paused: false,
            over: false,
            focus: Focus::Ports,
            by,
            zones_scrolled: 0,
            ports_scrolled: 0,
        }
    }

    /// Handles a key.
    pub(crate) fn key(&mut self, key: KeyEvent) {
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => self.over = true,
            KeyCode::Char('q') | KeyCode::Esc => self.over = true,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('r') => self.sorting().reversed ^= true,
            KeyCode::Tab => self.focus = self.next_focus(),
            KeyCode::Right => self.sort_by_next(true),
            KeyCode::Left => self.sort_by_next(false),
            KeyCode::Up => self.scroll(|at| at.saturating_sub(1)),
            KeyCode::Down => self.scroll(|at| at + 1),
            KeyCode::PageUp => self.scroll(|at| at.saturating_sub(PAGE)),
            KeyCode::PageDown => self.scroll(|at| at + PAGE),
            KeyCode::Home => self.scroll(|_| 0),
            KeyCode::End => self.scroll(|_| usize::MAX),
            _ => {}
        }
    }

    fn scroll(&mut self, to: impl Fn(usize) -> usize) {
        let view = &self.follower.view;
        let (scrolled, rows) = match self.focus {
            Focus::Zones => (&mut self.zones_scrolled, view.zones.len()),
            Focus::Threads | Focus::Ports => (&mut self.ports_scrolled, view.ports.len()),
        };
        *scrolled = to(*scrolled).min(rows.saturating_sub(1));
    }

    /// The next table in a circle; without zones there is none of them.
    fn next_focus(&self) -> Focus {
        match self.focus {
            Focus::Threads if !self.follower.view.zones.is_empty() => Focus::Zones,
            Focus::Threads | Focus::Zones => Focus::Ports,
            Focus::Ports => Focus::Threads,
        }
    }

    fn sorting(&mut self) -> &mut Sorting {
        match self.focus {
            Focus::Threads => &mut self.by.threads,
            Focus::Zones => &mut self.by.zones,
            Focus::Ports => &mut self.by.ports,
        }
    }

    /// Sorts by the next or the previous column, or by none between the last and the first.
    fn sort_by_next(&mut self, forward: bool) {
        let view = &self.follower.view;
        let table = match self.focus {
            Focus::Threads => text::threads(view),
            Focus::Zones => text::zones(view),
            Focus::Ports => text::ports(view),
        };
        let columns = table.headings.len();
        let sorting = self.sorting();
        sorting.column = match (sorting.column, forward) {
            (None, true) => Some(0),
            (None, false) => Some(columns - 1),
            (Some(column), true) => Some(column + 1).filter(|next| *next < columns),
            (Some(column), false) => column.checked_sub(1),
        };
    }

    /// Draws it within the available space.
    pub(crate) fn draw(&self, frame: &mut Frame<'_>) {
        let view = &self.follower.view;
        let mut lines = vec![Line::from(self.head())];
        lines.extend(self.follower.notice.iter().map(|notice| {
            Line::styled(notice.clone(), Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED))
        }));
        lines.extend(view.datapaths.iter().flat_map(text::datapath).map(Line::from));
        lines.push(Line::default());
        let (mut threads, mut zones, mut ports) = (text::threads(view), text::zones(view), text::ports(view));
        threads.sort(self.by.threads);
        zones.sort(self.by.zones);
        ports.sort(self.by.ports);
        lines.extend(self.table(&threads, Focus::Threads));
        lines.push(Line::default());
        if !zones.rows.is_empty() {
            let shown = self.table(&zones, Focus::Zones);
            lines.extend(scrolled(shown, self.zones_scrolled, ZONES_SHOWN));
            lines.push(Line::default());
        }
        let [top, rest, keys] = Layout::vertical([
            Constraint::Length(u16::try_from(lines.len()).unwrap_or(u16::MAX)),
            Constraint::Min(2),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(lines), top);
        let lines = self.table(&ports, Focus::Ports);
        let shown = usize::from(rest.height).saturating_sub(1);
        frame.render_widget(Paragraph::new(scrolled(lines, self.ports_scrolled, shown)), rest);
        frame.render_widget(Paragraph::new(KEYS).style(Style::new().add_modifier(Modifier::DIM)), keys);
    }

    fn head(&self) -> String {
        let head = text::head(&self.follower.view);
        if self.paused { head + " (paused)" } else { head }
    }

    /// Headings and rows; highlights the headings of the table that keys sort, and the sort column.
    fn table(&self, table: &Table, which: Focus) -> Vec<Line<'static>> {
        let by = match which {
            Focus::Threads => self.by.threads,
            Focus::Zones => self.by.zones,
            Focus::Ports => self.by.ports,
        };
        let focused = if which == self.focus { Modifier::BOLD } else { Modifier::empty() };
        let mut rows = table.aligned().into_iter();
        let heading = |(column, text): (usize, String)| {
            let sorted = by.column == Some(column);
            let style =
                Style::new().add_modifier(if sorted { focused | Modifier::REVERSED } else { focused });
            [Span::styled(text, style), Span::raw("  ")]
        };
        let headings = rows.next().into_iter().flatten();
        let mut lines = vec![headings.enumerate().flat_map(heading).collect::<Line<'_>>()];
        lines.extend(rows.map(|row| Line::from(row.join("  "))));
        lines
    }
}

/// Headings and `shown` rows of a table at most, below `above` others. Rows that fit are not scrolled away.
fn scrolled(mut table: Vec<Line<'static>>, above: usize, shown: usize) -> Vec<Line<'static>> {
    let above = above.min(table.len().saturating_sub(1 + shown));
    table.drain(1..=above);
    table.truncate(1 + shown);
    table
}
