"""The settings tree: every option's type, default, flag, help and range, stated once."""

from sharpi.settings.cluster import ClusterConfig as ClusterConfig
from sharpi.settings.cluster import RemoteExperts as RemoteExperts
from sharpi.settings.experts import ExpertConfig as ExpertConfig
from sharpi.settings.experts import Miss as Miss
from sharpi.settings.experts import Resident as Resident
from sharpi.settings.run import F16_TYPES as F16_TYPES
from sharpi.settings.run import FEATURES as FEATURES
from sharpi.settings.run import Device as Device
from sharpi.settings.run import Feature as Feature
from sharpi.settings.run import KvType as KvType
from sharpi.settings.run import KvTypes as KvTypes
from sharpi.settings.run import Load as Load
from sharpi.settings.run import Precision as Precision
from sharpi.settings.run import RopeKind as RopeKind
from sharpi.settings.run import RopeRequest as RopeRequest
from sharpi.settings.run import RunConfig as RunConfig
from sharpi.settings.sampling import GenerationRequest as GenerationRequest
from sharpi.settings.sampling import SamplingParams as SamplingParams
from sharpi.settings.speculation import USUAL_DRAFTS as USUAL_DRAFTS
from sharpi.settings.speculation import DraftKind as DraftKind
from sharpi.settings.speculation import SpeculationConfig as SpeculationConfig
