//! What a command works with.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::failure::{Exit, Failure, refused};
use super::hardware;
use super::output::Printer;
use super::working::{Counted, Working};
use rooflined_advice::{Catalogue, Opener, Request, suppose};
use rooflined_client::{Answer, Client, ClientError};

pub struct Context {
    pub client: Client,
    pub printer: Printer,
    pub catalogue: Option<Arc<Catalogue>>,
    /// Longest wait for an answer.
    pub timeout: Duration,
}

impl Context {
    /// What answers about other hardware are given from; read when it is first needed.
    pub fn catalogue(&mut self) -> Arc<Catalogue> {
        let catalogue = self
            .catalogue
            .get_or_insert_with(|| Arc::new(Catalogue::new(hardware::load_registry(), Opener::Caller)));
        Arc::clone(catalogue)
    }

    /// Asks the daemon, or, about hardware that is named, its data sheet.
    pub async fn ask<T: Serialize>(
        &mut self,
        route: &str,
        body: T,
        question: impl FnOnce(T) -> Request,
    ) -> Result<Answer, Failure> {
        let encoded = serde_json::to_vec(&body)
            .map_err(|source| ClientError::Unsendable { reason: source.to_string() })?;
        let request = question(body);
        let named = request.hardware().is_some();
        let what = if named { "computing" } else { "waiting for the daemon's answer" };
        let _working = Working::new(&self.printer, Counted::Nothing, what);
        if !named {
            return self.client.post_bytes(route, encoded).await.map_err(offering_hardware);
        }
        self.answer_from_data_sheet(&request)
    }

    /// Answers about hardware that is named, by its data sheet.
    pub fn answer_from_data_sheet(&mut self, request: &Request) -> Result<Answer, Failure> {
        let answer = suppose(&self.catalogue(), request).map_err(refused)?;
        let body = serde_json::to_vec(&answer).map_err(|source| ClientError::Unexpected { source })?;
        Ok(Answer { serial: None, body: body.into() })
    }
}

/// Without a daemon, these questions can still be asked about hardware that is named.
fn offering_hardware(error: ClientError) -> Failure {
    let ClientError::Unreachable { .. } = error else { return error.into() };
    let start = error.hint().unwrap_or_default();
    Failure::Message {
        exit: Exit::Unreachable,
        message: error.to_string(),
        hint: Some(format!(
            "{start}; --hardware KEY asks about hardware by its data sheet, without a daemon"
        )),
    }
}
