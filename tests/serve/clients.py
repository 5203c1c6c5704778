"""Other people's client libraries for these APIs, imported on use as that takes two seconds."""

from lazy_packages import OnUse

anthropic = OnUse("anthropic")
openai = OnUse("openai")
