//! `watch`: what the machine does now, in a terminal, until a key ends it; `watch --events`: one line for each event.

mod event_text;
mod live;
mod view;
mod wrap;

use std::io::IsTerminal;
use std::time::Duration;

use ratatui::crossterm::event::{Event as Input, KeyCode, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{MissedTickBehavior, sleep};

use super::Context;
use super::args::WatchArgs;
use super::failure::Failure;
use super::output::Format;
use super::signals::wait_for_signal;
use live::Live;
use rooflined_client::{Client, Event, Events};
use view::{Page, ViewState};

/// Between two tries to have events again.
const AGAIN: Duration = Duration::from_secs(2);

/// The view, or with `--events` lines.
pub async fn run(context: &mut Context, args: &WatchArgs) -> Result<(), Failure> {
    if args.events {
        return lines(context).await;
    }
    if !(std::io::stdout().is_terminal() && std::io::stdin().is_terminal()) {
        return Err(Failure::usage("the live view needs a terminal")
            .with_hint("without one: rooflinectl watch --events, or rooflinectl status"));
    }
    let mut live = Live::default();
    // What is wrong from the beginning is said as of any other command.
    live.refresh(&mut context.client).await?;
    let mut terminal = ratatui::try_init()
        .map_err(|error| Failure::failed(format!("cannot use the terminal: {error}"), "try TERM=xterm"))?;
    let ended = follow(context, args.interval, &mut live, &mut terminal).await;
    ratatui::restore();
    ended
}

/// Draws what is new, until a key or a signal ends it.
async fn follow(
    context: &mut Context,
    interval: Duration,
    live: &mut Live,
    terminal: &mut ratatui::DefaultTerminal,
) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| Failure::failed(format!("cannot draw: {error}"), "try again");
    let ended = wait_for_signal();
    tokio::pin!(ended);
    let mut keys = keys();
    let mut shown =
        ViewState { ascii: context.printer.ascii, colour: context.printer.colour, ..ViewState::default() };
    let mut events = Subscription::new(context.client.another(Duration::from_secs(5)));
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        terminal.draw(|frame| view::draw(frame, live, &mut shown)).map_err(cannot)?;
        tokio::select! {
            _ = ticks.tick(), if !shown.paused => {
                // A daemon that restarts is waited for, and the view says so.
                live.problem = live.refresh(&mut context.client).await.err().map(|failure| failure.to_string());
            }
            event = events.next() => live.record_event(&event),
            input = keys.recv() => match input {
                Some(input) => if !shown.take(&input) { return Ok(()) },
                // The terminal is gone.
                None => return Ok(()),
            },
            _ = &mut ended => return Ok(()),
        }
    }
}

/// Keys and changes of size, read by a thread of their own that ends with the program.
fn keys() -> UnboundedReceiver<Input> {
    let (sender, receiver) = unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(input) = ratatui::crossterm::event::read() {
            if sender.send(input).is_err() {
                break;
            }
        }
    });
    receiver
}

impl ViewState {
    /// Does what the key asks for; false where that is to end.
    fn take(&mut self, input: &Input) -> bool {
        let Input::Key(key) = input else { return true };
        if key.kind == KeyEventKind::Release {
            return true;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('1') => self.turn(Page::Overview),
            KeyCode::Char('2') => self.turn(Page::Values),
            KeyCode::Char('3') => self.turn(Page::Events),
            KeyCode::Char('?' | 'h') if self.page == Page::Help => self.turn(Page::Overview),
            KeyCode::Char('?' | 'h') => self.turn(Page::Help),
            KeyCode::Tab | KeyCode::Right => self.turn(self.page.next()),
            KeyCode::Char(' ' | 'p') => self.paused = !self.paused,
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(10),
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
        true
    }
}

/// The events of the daemon, subscribed to again when they end.
struct Subscription {
    client: Client,
    events: Option<Events>,
}

impl Subscription {
    const fn new(client: Client) -> Self {
        Self { client, events: None }
    }

    async fn next(&mut self) -> Event {
        loop {
            if self.events.is_none() {
                self.events = self.client.events().await.ok();
            }
            match &mut self.events {
                Some(events) => match events.next().await {
                    Ok(Some(event)) => return event,
                    _ => self.events = None,
                },
                None => sleep(AGAIN).await,
            }
        }
    }
}

/// Prints events as they come, in words and without the samples; with `-o json` or `jsonl` each as one JSON object.
async fn lines(context: &mut Context) -> Result<(), Failure> {
    let mut events = context.client.events().await?;
    while let Some(event) = events.next().await? {
        let data: serde_json::Value = serde_json::from_str(&event.data).unwrap_or(event.data.into());
        match context.printer.format {
            Format::Human => {
                if let Some(words) = event_text::in_words(&event.name, &data) {
                    context.printer.line(&format!("{:<12} {words}", event.name))?;
                }
            }
            _ => {
                let line = serde_json::json!({ "event": event.name, "data": data });
                context.printer.json(line.to_string().as_bytes())?;
            }
        }
    }
    Err(Failure::failed("the daemon has ended the stream of events", "see why with: journalctl -u rooflined"))
}
