# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that several modules share."""

from __future__ import annotations

from typing import Any, Dict

from ansible.module_utils.basic import env_fallback


def connection_argument_spec() -> Dict[str, Any]:
    """Argument spec of the options in the fragment C(gpuops.k8s.cluster_options)."""
    return {
        "kubeconfig": {"type": "path", "fallback": (env_fallback, ["K8S_AUTH_KUBECONFIG"])},
        "context": {"type": "str", "fallback": (env_fallback, ["K8S_AUTH_CONTEXT"])},
        "host": {"type": "str", "fallback": (env_fallback, ["K8S_AUTH_HOST"])},
        "api_key": {"type": "str", "no_log": True, "fallback": (env_fallback, ["K8S_AUTH_API_KEY"])},
        "ca_cert": {"type": "path", "aliases": ["ssl_ca_cert"], "fallback": (env_fallback, ["K8S_AUTH_SSL_CA_CERT"])},
        "client_cert": {"type": "path", "aliases": ["cert_file"], "fallback": (env_fallback, ["K8S_AUTH_CERT_FILE"])},
        "client_key": {
            "type": "path",
            "no_log": True,
            "aliases": ["key_file"],
            "fallback": (env_fallback, ["K8S_AUTH_KEY_FILE"]),
        },
        "validate_certs": {"type": "bool", "aliases": ["verify_ssl"], "fallback": (env_fallback, ["K8S_AUTH_VERIFY_SSL"])},
        "request_timeout": {"type": "int", "default": 30},
    }
