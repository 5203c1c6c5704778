"""The list of parameters that sharpi refuses: those that would change the answer, if it had them.

Clients often send them with a value that has no effect; such values pass. Every other parameter
that sharpi does not know is ignored.
"""

from sharpi.serve.http.body import Refusals


def _all(why: str, **neutral: tuple[object, ...]) -> Refusals:
    return {name: (values, why) for name, values in neutral.items()}


# Parameters of OpenAI, llama.cpp, vLLM, text-generation-inference and OpenRouter.
REFUSED: Refusals = {
    **_all(
        "sharpi does not have this sampler",
        mirostat=(0,),
        mirostat_mode=(0,),
        typical_p=(1, 0),
        tfs_z=(1,),
        tfs=(1,),
        top_a=(0,),
        top_n_sigma=(-1, 0),
        dynatemp_range=(0,),
        dynamic_temperature=(False,),
        smoothing_factor=(0,),
        xtc_probability=(0,),
        dry_multiplier=(0,),
        epsilon_cutoff=(0,),
        eta_cutoff=(0,),
        penalty_alpha=(0,),
        guidance_scale=(1,),
        no_repeat_ngram_size=(0,),
        encoder_repetition_penalty=(1,),
        use_beam_search=(False,),
    ),
    **_all("set 'temperature' to 0", do_sample=(True,)),
    **_all("use 'logit_bias'", bad_words=([],), allowed_token_ids=([],)),
    **_all("an answer ends where the model ends it", min_tokens=(0,)),
    **_all("use 'stop'", stop_token_ids=([],)),
    **_all("a prompt that is too long is refused", truncate_prompt_tokens=(-1, 0)),
    **_all(
        "use 'response_format' or 'grammar'",
        guided_json=({}, ""),
        guided_regex=("",),
        guided_choice=([],),
        guided_grammar=("",),
        structured_outputs=({},),
        structural_tag=("",),
    ),
    **_all("use 'logprobs'", n_probs=(0,), top_n_tokens=(0,), prompt_logprobs=(0,)),
    **_all("use 'echo'", return_full_text=(False,)),
    **_all("sharpi has no adapters", lora=([],)),
    **_all("put them into the messages", documents=([],)),
    **_all("the model's own template is used", chat_template=("",)),
    **_all("the model continues text and does not fill gaps", suffix=("",)),
    **_all("the model writes text only", modalities=(["text"],)),
    **_all("use 'tools'", functions=([],)),
    **_all(
        "sharpi keeps no answers; send the conversation",
        background=(False,),
        previous_response_id=("",),
        conversation=(),
    ),
}
