"""The clients that others have written for these APIs: two seconds of imports, made on use."""

from lazy_packages import OnUse

anthropic = OnUse("anthropic")
openai = OnUse("openai")
