"""ForeignBody: parameters of other servers, which clients often send with their default values.

A value that does not affect the answer is accepted. A value that needs a feature which sharpi lacks
is refused, because the answer would not be the requested one.
"""

from typing import Annotated, Any

from sharpi.serve.http.body import Body, Ignored, only

_NO_SAMPLER = "sharpi does not have this sampler"
_WHOLE_TEXT = "answers are the model's whole text"
_ASK = "use 'response_format' or 'grammar'"


class ForeignBody(Body):
    """Parameters of llama.cpp, vLLM, text-generation-inference, OpenRouter and Ollama."""

    # Samplers that sharpi lacks; the accepted values switch them off.
    mirostat: Annotated[Any, only(0, False, why=_NO_SAMPLER)] = None
    mirostat_mode: Annotated[Any, only(0, False, why=_NO_SAMPLER)] = None
    mirostat_tau: Ignored = None
    mirostat_eta: Ignored = None
    typical_p: Annotated[Any, only(1, 0, why=_NO_SAMPLER)] = None
    tfs_z: Annotated[Any, only(1, why=_NO_SAMPLER)] = None
    tfs: Annotated[Any, only(1, why=_NO_SAMPLER)] = None
    top_a: Annotated[Any, only(0, why=_NO_SAMPLER)] = None
    top_n_sigma: Annotated[Any, only(-1, 0, why=_NO_SAMPLER)] = None
    dynatemp_range: Annotated[Any, only(0, why=_NO_SAMPLER)] = None
    dynatemp_exponent: Ignored = None
    dynamic_temperature: Annotated[Any, only(False, why=_NO_SAMPLER)] = None
    smoothing_factor: Annotated[Any, only(0, why=_NO_SAMPLER)] = None
    smoothing_curve: Ignored = None
    xtc_probability: Annotated[Any, only(0, why=_NO_SAMPLER)] = None
    xtc_threshold: Ignored = None
    dry_multiplier: Annotated[Any, only(0, why=_NO_SAMPLER)] = None
    dry_base: Ignored = None
    dry_allowed_length: Ignored = None
    dry_penalty_last_n: Ignored = None
    dry_sequence_breakers: Ignored = None
    epsilon_cutoff: Annotated[Any, only(0, why=_NO_SAMPLER)] = None
    eta_cutoff: Annotated[Any, only(0, why=_NO_SAMPLER)] = None
    penalty_alpha: Annotated[Any, only(0, why=_NO_SAMPLER)] = None
    guidance_scale: Annotated[Any, only(1, why=_NO_SAMPLER)] = None
    no_repeat_ngram_size: Annotated[Any, only(0, why=_NO_SAMPLER)] = None
    encoder_repetition_penalty: Annotated[Any, only(1, why=_NO_SAMPLER)] = None
    length_penalty: Annotated[Any, only(1, why=_NO_SAMPLER)] = None
    use_beam_search: Annotated[Any, only(False, why=_NO_SAMPLER)] = None
    early_stopping: Annotated[Any, only(False, why=_NO_SAMPLER)] = None
    penalize_nl: Annotated[Any, only(False, why=_NO_SAMPLER)] = None
    do_sample: Annotated[Any, only(True, why="set 'temperature' to 0")] = None
    watermark: Annotated[Any, only(False, why=_NO_SAMPLER)] = None
    bad_words: Annotated[Any, only([], why="use 'logit_bias'")] = None
    allowed_token_ids: Annotated[Any, only(why="use 'logit_bias' or 'grammar'")] = None
    logits_processors: Annotated[Any, only([], why="sharpi runs no code of requests")] = None
    # Parameters of the answer's text and its further fields.
    min_tokens: Annotated[Any, only(0, why="an answer ends where the model ends it")] = None
    min_keep: Annotated[Any, only(0, 1, why=_NO_SAMPLER)] = None
    stop_token_ids: Annotated[Any, only([], why="use 'stop'")] = None
    include_stop_str_in_output: Annotated[Any, only(False, why="a stop string is left out")] = None
    skip_special_tokens: Annotated[Any, only(True, why="control tokens are not text")] = None
    spaces_between_special_tokens: Ignored = None
    truncate_prompt_tokens: Annotated[
        Any, only(-1, 0, why="a prompt that is too long is refused")
    ] = None
    add_special_tokens: Ignored = None
    prompt_logprobs: Annotated[
        Any, only(0, False, why="use 'echo' with 'logprobs' in /v1/completions")
    ] = None
    n_probs: Annotated[Any, only(0, why="use 'logprobs'")] = None
    top_n_tokens: Annotated[Any, only(0, why="use 'logprobs'")] = None
    post_sampling_probs: Annotated[Any, only(False, why="logprobs are the model's own")] = None
    return_tokens: Annotated[Any, only(False, why=_WHOLE_TEXT)] = None
    return_token_ids: Annotated[Any, only(False, why=_WHOLE_TEXT)] = None
    return_tokens_as_token_ids: Annotated[Any, only(False, why=_WHOLE_TEXT)] = None
    return_full_text: Annotated[Any, only(False, why="use 'echo'")] = None
    return_progress: Annotated[Any, only(False, why=_WHOLE_TEXT)] = None
    n_indent: Annotated[Any, only(0, why=_WHOLE_TEXT)] = None
    # Constraints under other names.
    json_schema: Annotated[Any, only(why=_ASK)] = None
    guided_json: Annotated[Any, only(why=_ASK)] = None
    guided_regex: Annotated[Any, only(why=_ASK)] = None
    guided_choice: Annotated[Any, only(why=_ASK)] = None
    guided_grammar: Annotated[Any, only(why=_ASK)] = None
    structured_outputs: Annotated[Any, only(why=_ASK)] = None
    structural_tag: Annotated[Any, only(why=_ASK)] = None
    guided_decoding_backend: Ignored = None
    guided_whitespace_pattern: Ignored = None
    grammar_lazy: Annotated[Any, only(False, why=_ASK)] = None
    # Parameters of how a server computes, caches and counts.
    n_keep: Ignored = None
    n_discard: Ignored = None
    id_slot: Ignored = None
    slot_id: Ignored = None
    t_max_predict_ms: Annotated[Any, only(0, -1, why="use 'max_tokens'")] = None
    timings_per_token: Ignored = None
    samplers: Annotated[Any, only([], why="the order of samplers is fixed")] = None
    lora: Annotated[Any, only([], why="the model is served as it is")] = None
    documents: Annotated[Any, only([], why="put them into the messages")] = None
    chat_template: Annotated[Any, only("", why="the model's own is used")] = None
    reasoning_format: Ignored = None
    parse_tool_calls: Annotated[Any, only(True, why="calls are always read")] = None
    priority: Ignored = None
    request_id: Ignored = None
    cache_salt: Ignored = None
    keep_alive: Ignored = None
    session_id: Ignored = None
    provider: Ignored = None
    route: Ignored = None
    models: Annotated[Any, only([], why="this server has one model")] = None
    transforms: Annotated[Any, only([], why="sharpi edits no conversations")] = None
    plugins: Annotated[Any, only([], why="sharpi has no plug-ins")] = None
    usage: Ignored = None
    details: Ignored = None
