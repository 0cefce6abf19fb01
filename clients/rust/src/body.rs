//! What is sent: bodies as JSON, with the files that they name by descriptor.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::ser::{Error as _, SerializeMap};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::address::Socket;
use crate::error::{Error, Result};

/// How many files a request carries.
const MAX_FILES: usize = 2;

/// A body of the type `T`, or any JSON in its place.
pub trait Body<T>: Serialize + Sync {}

/// The types of requests; written by the generator of [`types`](crate::types).
pub trait Request: Serialize + Sync {}

impl<T: Request> Body<T> for T {}
impl<T: Request> Body<T> for Value {}

/// The constructor and the setters of a structure that may gain fields: `new` of those before the semicolon, which it must have,
/// and a function for each of the others. `into` takes what becomes the type, `all` takes several of those, `each` several
/// of the type itself, `just` one.
macro_rules! setters {
    ($name:ident { ; $($field:ident: $how:ident $kind:ty),* }) => {
        impl $name {
            $($crate::body::setters!(@one $how $field $kind);)*
        }
    };
    ($name:ident { $($needed:ident: $taken:ident $of:ty),+; $($field:ident: $how:ident $kind:ty),* }) => {
        $crate::body::setters!(@new $name [$($needed $taken $of,)+] []);
        $crate::body::setters!($name { ; $($field: $how $kind),* });
    };
    (@new $name:ident [] [$($needed:ident ($type:ty) ($value:expr),)+]) => {
        impl $name {
            /// Of what it must have; functions of their names set the other fields.
            #[must_use]
            pub fn new($($needed: $type),+) -> Self {
                Self { $($needed: $value,)+ ..Self::default() }
            }
        }
    };
    (@new $name:ident [$needed:ident into $of:ty, $($rest:tt)*] [$($done:tt)*]) => {
        $crate::body::setters!(@new $name [$($rest)*] [$($done)* $needed (impl Into<$of>) ($needed.into()),]);
    };
    (@new $name:ident [$needed:ident just $of:ty, $($rest:tt)*] [$($done:tt)*]) => {
        $crate::body::setters!(@new $name [$($rest)*] [$($done)* $needed ($of) ($needed),]);
    };
    (@new $name:ident [$needed:ident all $of:ty, $($rest:tt)*] [$($done:tt)*]) => {
        $crate::body::setters!(@new $name [$($rest)*] [$($done)* $needed (impl IntoIterator<Item = impl Into<$of>>) ($needed.into_iter().map(Into::into).collect()),]);
    };
    (@new $name:ident [$needed:ident each $of:ty, $($rest:tt)*] [$($done:tt)*]) => {
        $crate::body::setters!(@new $name [$($rest)*] [$($done)* $needed (impl IntoIterator<Item = $of>) ($needed.into_iter().collect()),]);
    };
    (@one into $field:ident $kind:ty) => {
        $crate::body::setters!(@set $field (impl Into<$kind>) ($field.into()));
    };
    (@one just $field:ident $kind:ty) => {
        $crate::body::setters!(@set $field ($kind) ($field));
    };
    (@one all $field:ident $kind:ty) => {
        $crate::body::setters!(@set $field (impl IntoIterator<Item = impl Into<$kind>>) ($field.into_iter().map(Into::into).collect()));
    };
    (@one each $field:ident $kind:ty) => {
        $crate::body::setters!(@set $field (impl IntoIterator<Item = $kind>) ($field.into_iter().collect()));
    };
    (@set $field:ident ($type:ty) ($value:expr)) => {
        #[doc = concat!("Sets the field `", stringify!($field), "`.")]
        #[must_use]
        pub fn $field(mut self, $field: $type) -> Self {
            self.$field = Some($value);
            self
        }
    };
}
pub(crate) use setters;

/// A model in a workload.
///
/// ```
/// use rooflined_client::Model;
///
/// let of_the_registry: Model = "llama-3.2-1b".into();
/// let by_its_fields: Model = serde_json::json!({"model_type": "llama", "hidden_size": 2048}).into();
/// assert!(Model::open("/nonexistent.gguf").is_err());
/// # drop((of_the_registry, by_its_fields));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Model {
    /// A key of the registry.
    Key(String),
    /// The fields of a `config.json`, or anything else that the daemon takes.
    Fields(Value),
    /// A file or a checkpoint's directory that the daemon opens with its own rights.
    Path(PathBuf),
    /// An open file, which is attached to the request and read by the daemon, as far as whoever opened it may.
    File(ModelFile),
}

/// An open GGUF file, `.safetensors` file or `config.json`.
#[derive(Debug, Clone)]
pub struct ModelFile {
    descriptor: Arc<OwnedFd>,
    path: Option<PathBuf>,
}

impl Model {
    /// The model of a file, which is opened here, or of a checkpoint's directory, which the daemon opens.
    ///
    /// # Errors
    /// [`Error::Invalid`]: it cannot be opened, or is no regular file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let failed = |why: std::io::Error| Error::Invalid {
            message: format!("{} cannot be opened", path.display()),
            source: Some(Arc::new(why)),
        };
        let absolute = std::path::absolute(path).map_err(failed)?;
        // Before it is opened: to open a FIFO waits for who writes.
        let found = std::fs::metadata(&absolute).map_err(failed)?;
        if found.is_dir() {
            return Ok(Self::Path(absolute));
        }
        if !found.is_file() {
            let hint = "give a GGUF file, a .safetensors file or a config.json";
            return Err(Error::invalid(format!("{} is no regular file; {hint}", path.display())));
        }
        let file = File::open(&absolute).map_err(failed)?;
        Ok(Self::from_file(file, Some(absolute)))
    }

    /// The model of a file that is open already; `path` is the name under which runs of it are filed.
    #[must_use]
    pub fn from_file(file: File, path: Option<PathBuf>) -> Self {
        Self::File(ModelFile { descriptor: Arc::new(file.into()), path })
    }
}

impl From<&str> for Model {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<String> for Model {
    fn from(key: String) -> Self {
        Self::Key(key)
    }
}

impl From<Value> for Model {
    fn from(fields: Value) -> Self {
        Self::Fields(fields)
    }
}

thread_local! {
    /// The files of the request that is being encoded on this thread.
    static FILES: RefCell<Option<Vec<Arc<OwnedFd>>>> = const { RefCell::new(None) };
}

impl Serialize for Model {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let (fd, path) = match self {
            Self::Key(key) => return key.serialize(serializer),
            Self::Fields(fields) => return fields.serialize(serializer),
            Self::Path(path) => (None, Some(path)),
            Self::File(file) => {
                let attached = FILES.with_borrow_mut(|files| {
                    let files = files.as_mut().ok_or("an open file is only attached by a client")?;
                    if files.len() == MAX_FILES {
                        return Err("a request carries two open files at most; ask twice");
                    }
                    files.push(Arc::clone(&file.descriptor));
                    Ok(files.len() - 1)
                });
                (Some(attached.map_err(S::Error::custom)?), file.path.as_ref())
            }
        };
        let mut map = serializer.serialize_map(None)?;
        if let Some(fd) = fd {
            map.serialize_entry("fd", &fd)?;
        }
        if let Some(path) = path {
            let text = path.to_str().ok_or_else(|| S::Error::custom("the path of the model is no UTF-8"))?;
            map.serialize_entry("path", text)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Model {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Ok(match Value::deserialize(deserializer)? {
            Value::String(key) => Self::Key(key),
            fields => Self::Fields(fields),
        })
    }
}

impl PartialEq for Model {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Key(mine), Self::Key(theirs)) => mine == theirs,
            (Self::Fields(mine), Self::Fields(theirs)) => mine == theirs,
            (Self::Path(mine), Self::Path(theirs)) => mine == theirs,
            (Self::File(mine), Self::File(theirs)) => Arc::ptr_eq(&mine.descriptor, &theirs.descriptor),
            _ => false,
        }
    }
}

/// JSON has no word for what is not finite; it would be sent as `null`.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over fields in this way")]
pub(crate) fn finite<S: Serializer>(number: &f64, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    if !number.is_finite() {
        return Err(S::Error::custom(format!("{number} is no number that JSON has")));
    }
    serializer.serialize_f64(*number)
}

/// As [`finite`], of a field that may be left out.
pub(crate) fn finite_or_absent<S: Serializer>(
    number: &Option<f64>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    match number {
        Some(number) => finite(number, serializer),
        None => serializer.serialize_none(),
    }
}

/// A request as bytes, with its files.
#[derive(Debug, Clone)]
pub(crate) struct Encoded {
    pub(crate) method: String,
    pub(crate) route: String,
    pub(crate) socket: Socket,
    /// Whether it changes something, in which case it is never sent twice.
    pub(crate) changes: bool,
    pub(crate) data: Vec<u8>,
    pub(crate) files: Vec<Arc<OwnedFd>>,
}

impl Encoded {
    /// # Errors
    /// [`Error::Invalid`].
    pub(crate) fn new(method: &str, route: String, body: Option<&impl Serialize>) -> Result<Self> {
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if !route.starts_with('/') || !is_plain(&route) || !is_plain(method) || method.is_empty() {
            let hint = "escape what is no letter or digit, and begin with a slash";
            return Err(Error::invalid(format!("{method:?} {route:?} is no route; {hint}")));
        }
        FILES.set(Some(Vec::new()));
        let encoded = body.map(serde_json::to_vec).transpose();
        let files = FILES.take().unwrap_or_default();
        let body = encoded.map_err(|why| Error::invalid(format!("the request cannot be sent: {why}")))?;
        let length = body.as_ref().map_or(0, Vec::len);
        let kind = if body.is_some() { "content-type: application/json\r\n" } else { "" };
        let head =
            format!("{method} {route} HTTP/1.1\r\nhost: rooflined\r\n{kind}content-length: {length}\r\n\r\n");
        let mut data = head.into_bytes();
        data.extend(body.unwrap_or_default());
        Ok(Self { method: method.to_owned(), route, socket: Socket::Query, changes: false, data, files })
    }

    /// For the control socket.
    pub(crate) fn control(self) -> Self {
        Self { socket: Socket::Control, ..self }
    }

    /// Not to be sent twice.
    pub(crate) fn once(self) -> Self {
        Self { changes: true, ..self }
    }
}

/// A route with its parts and parameters escaped; parameters that are `None` are left out.
pub(crate) fn route(parts: &[&str], query: &[(&str, Option<&str>)]) -> String {
    let mut route = String::new();
    for part in parts {
        route.push('/');
        escape(part, &mut route);
    }
    let mut mark = '?';
    for (key, value) in query {
        let Some(value) = value else { continue };
        route.push(mark);
        route.push_str(key);
        route.push('=');
        escape(value, &mut route);
        mark = '&';
    }
    route
}

fn escape(text: &str, into: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            into.push(char::from(byte));
        } else {
            into.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use serde_json::json;

    use super::*;
    use crate::types::{
        BatchRange, Freedom, ModesRequest, PredictRequest, RecommendRequest, SweepRequest, Workload,
    };

    fn body_of(encoded: &Encoded) -> Value {
        let text = std::str::from_utf8(&encoded.data).unwrap();
        serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    fn predict(model: Model) -> PredictRequest {
        PredictRequest {
            workload: Workload { model: Some(model), ..Workload::default() },
            ..Default::default()
        }
    }

    #[test]
    fn what_is_not_given_is_not_sent() {
        let request = predict("llama-3.2-1b".into());
        let encoded = Encoded::new("POST", "/v1/predict".into(), Some(&request)).unwrap();
        assert_eq!(body_of(&encoded), json!({"workload": {"model": "llama-3.2-1b"}}));
        assert!(encoded.files.is_empty());
    }

    #[test]
    fn an_open_file_is_attached_by_its_position_and_two_at_most() {
        let executable = std::env::current_exe().unwrap();
        let model = Model::open(&executable).unwrap();
        let nameless = Model::from_file(File::open(&executable).unwrap(), None);
        let request =
            SweepRequest { models: Some(vec![model.clone(), nameless.clone()]), ..SweepRequest::default() };
        let encoded = Encoded::new("POST", "/v1/sweep".into(), Some(&request)).unwrap();
        assert_eq!(body_of(&encoded), json!({"models": [{"fd": 0, "path": executable}, {"fd": 1}]}));
        let Model::File(ModelFile { descriptor, .. }) = &model else { panic!("it is a file") };
        assert_eq!(encoded.files[0].as_raw_fd(), descriptor.as_raw_fd());
        let three = SweepRequest { models: Some(vec![model.clone(), nameless.clone(), nameless]), ..request };
        let refused = Encoded::new("POST", "/v1/sweep".into(), Some(&three));
        assert!(refused.is_err_and(|error| error.to_string().contains("two open files at most")));
        // Nobody takes the descriptor.
        assert!(serde_json::to_string(&model).is_err());
    }

    #[test]
    fn what_is_set_is_sent_under_its_name() {
        let freedom =
            Freedom::default().formats(["int8"]).power_modes("live").batch(BatchRange::default().max(8));
        let workload = Workload::default().model("llama-3.2-1b").context_tokens(512);
        let request = RecommendRequest::new(workload).engine("llama.cpp").freedom(freedom);
        let wanted = json!({
            "workload": {"model": "llama-3.2-1b", "context_tokens": 512},
            "engine": "llama.cpp",
            "freedom": {"formats": ["int8"], "power_modes": "live", "batch": {"max": 8}},
        });
        assert_eq!(serde_json::to_value(&request).unwrap(), wanted);
        let several = Freedom::default().power_modes(["15W", "25W"].into_iter().collect::<ModesRequest>());
        assert_eq!(serde_json::to_value(&several).unwrap(), json!({"power_modes": ["15W", "25W"]}));
        let sweep = SweepRequest::default().batches([1, 8]).models([Model::from("a"), json!({}).into()]);
        assert_eq!(serde_json::to_value(&sweep).unwrap(), json!({"batches": [1, 8], "models": ["a", {}]}));
    }

    #[test]
    fn what_cannot_be_a_model_is_refused_before_it_is_sent() {
        for path in ["/nonexistent.gguf", "/dev/null"] {
            assert!(matches!(Model::open(path), Err(Error::Invalid { .. })), "{path}");
        }
        assert_eq!(Model::open("/").unwrap(), Model::Path("/".into()));
    }

    #[test]
    fn what_json_has_no_word_for_is_not_sent() {
        for number in [f64::NAN, f64::INFINITY] {
            let request = crate::types::ObservationRequest { time_s: Some(number), ..Default::default() };
            let found = Encoded::new("POST", "/v1/observations".into(), Some(&request));
            assert!(matches!(found, Err(Error::Invalid { .. })), "{number}");
        }
    }

    #[test]
    fn a_route_is_escaped_and_one_that_is_not_is_refused() {
        assert_eq!(route(&["v1", "models", "a/../b c\r\n"], &[]), "/v1/models/a%2F..%2Fb%20c%0D%0A");
        assert_eq!(
            route(&["v1"], &[("a", None), ("b", Some("x&y")), ("c", Some("ä"))]),
            "/v1?b=x%26y&c=%C3%A4"
        );
        for (method, route) in
            [("GET", "/a b"), ("GET", "/\r\nx: y"), ("GET", "v1"), ("G T", "/"), ("", "/"), ("GET", "")]
        {
            let found = Encoded::new(method, route.into(), None::<&Value>);
            assert!(matches!(found, Err(Error::Invalid { .. })), "{method} {route}");
        }
    }
}
