use rooflined_models::import::config::Config;

pub fn run(bytes: &[u8]) {
    let config = Config::parse(bytes).or_else(|_| Config::parse(b"{}")?.with_modelopt(bytes));
    if let Ok(model) = config.and_then(|config| config.model(None, "fuzzed")) {
        assert!(model.bytes_per_token().get() <= model.bytes().get());
    }
}
