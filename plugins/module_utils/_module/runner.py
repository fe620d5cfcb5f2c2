# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The thin part between a module and its work.

A module's C(main) makes the AnsibleModule, calls C(run_cluster_module) inside a try, and makes the
two final calls itself: C(fail_json(msg=error.line())) for a GpuOpsError, C(exit_json(**result)) else.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuops.k8s.plugins.module_utils._kube.client import Cluster, ConnectionOptions
from ansible_collections.gpuops.k8s.plugins.module_utils._module.options import connection_argument_spec

Work = Callable[[Dict[str, Any], Cluster, bool], Dict[str, Any]]


def cluster_module(
    argument_spec: Optional[Dict[str, Any]] = None, supports_check_mode: bool = True, **options: Any
) -> AnsibleModule:
    """An AnsibleModule with the connection options added to C(argument_spec)."""
    spec = {**connection_argument_spec(), **(argument_spec or {})}
    return AnsibleModule(argument_spec=spec, supports_check_mode=supports_check_mode, **options)


def run_cluster_module(module: AnsibleModule, work: Work) -> Dict[str, Any]:
    """Connect, then call C(work(params, cluster, check_mode)); returns its result with C(changed) set.

    Raises GpuOpsError (ApiError for refused or unanswered calls) with one line for the user.
    """
    cluster = Cluster.connect(ConnectionOptions.from_params(module.params))
    return {"changed": False, **work(dict(module.params), cluster, bool(module.check_mode))}
